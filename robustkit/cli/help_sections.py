"""The options of a command in its help, by what they are about."""

import click

_FEW = 12  # options that need no sections
_WIDTH = 30  # of the column of names, which click limits to as much

# An option that is in no section is the command's own and comes first.
_SECTIONS = {
    "Model": ("model", "weights", "name", "num-classes", "mean", "std", "train", "retrain", "random-init"),
    "Data": ("dataset", "data-dir", "download", "split", "image-size", "gray", "samples", "mask"),
    "Attack": ("attack", "norm", "eps", "loss", "target"),
    "Masked, randomized and smoothed models": (
        "bpda", "eot", "probabilities", "straight-through", "rejects", "smooth", "smooth-draws", "smooth-alpha",
    ),
    "Transfer": ("surrogate", "surrogate-weights", "surrogate-ensemble"),
    "Corruptions": ("corruptions", "severity", "corruption-baseline"),
    "Checks": ("audit", "checks", "precision", "fail-under"),
    "Models on a server": ("max-queries", "rate", "parallel", "token-variable", "timeout"),
    "Speed and machines": (
        "batch-size", "device", "workers", "backend", "ray-address", "shard", "no-fold", "compile", "cuda-graphs",
        "bf16", "tf32",
    ),
    "Run": ("out", "keep-adversarial", "seed", "plan", "dry-run", "config", "quiet", "help"),
}  # fmt: skip
_SECTION_OF = {f"--{name}": title for title, names in _SECTIONS.items() for name in names}


class HelpInSections(click.Command):
    """A command whose help has its options in sections, if they are many."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options, section by section."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        if len(options) <= _FEW:
            super().format_options(ctx, formatter)
            return
        rows: dict[str, list[tuple[str, str]]] = {"Options": [], **{title: [] for title in _SECTIONS}}
        for option in options:
            record = option.get_help_record(ctx)
            if record is not None:
                title = next((_SECTION_OF[word] for word in option.opts if word in _SECTION_OF), "Options")
                rows[title].append((record[0].ljust(_WIDTH), record[1]))
        for title, some in rows.items():
            if some:
                with formatter.section(title):
                    formatter.write_dl(some, col_max=_WIDTH)
