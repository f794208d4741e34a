"""A finished or unfinished run as values: everything a report needs, and no model."""

import html
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from robustkit.checks.check import Check
from robustkit.errors import UserError
from robustkit.evidence.picture import Picture
from robustkit.evidence.sample_rows import SampleRows
from robustkit.paths import user_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from robustkit.evidence.adversarial import AdversarialExamples

# In the order of the files; what they mean stands in `Run`.
RESULT_COLUMNS: Final = (
    *("model", "dataset", "split", "norm", "eps", "eps_text", "attack", "role", "n", "correct", "accuracy"),
    *("ci_low", "ci_high", "ci_method", "attacked", "broken", "success_rate", "forwards", "backwards"),
)
SAMPLE_COLUMNS: Final = (
    *("model", "norm", "eps", "eps_text", "attack", "sample", "label", "clean_pred", "verdict", "adv_pred"),
    *("queries_to_break", "restart", "target", "linf", "l2", "l1", "l0", "forwards", "backwards"),
)


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """The evidence of one run and the tables computed from it; `print(run)` shows its table.

    `results` has one row per model x norm x eps x attack, with the columns RESULT_COLUMNS:

    - model, dataset, split, norm ("-" for the clean row), eps (number), eps_text ("8/255"), attack
    - role: "clean"; "attack" (it attacked every correctly classified image); "member" (one attack of an ensemble, which
      attacked only images that the members before it did not break); "ensemble"; "worst-case" (an image counts as
      robust if no attack broke it); "audit" (AutoAttack on random survivors, images that no other attack broke: n of
      them were drawn, `correct` were not broken, and `ci_low` is the one-sided 95 % bound of Clopper and Pearson for
      the share of survivors that AutoAttack does not break; ci_method is "exact" where all survivors were drawn);
      "corruption" (of norm "corruption", with the severity as eps and the corruption as attack; not part of any worst
      case);
      "certified" (of a smoothed model: images predicted correctly whose class is certain in the whole ball);
      "union" (only of a run with several norms, once for each model, with the norm "union", no eps, and such as
      "Linf 0.1 + L2 0.5" in eps_text: an image counts as correct if it stands in every norm and radius of the run)
    - n: images; correct: images classified correctly under this attack; in a row of role "member", under it and all
      members before it; accuracy = correct / n
    - ci_low, ci_high, ci_method: 95 % interval of the accuracy ("wilson" or "clopper-pearson"; of a run with a
      precision "confidence-sequence", for the accuracy on all images of the data set)
    - attacked, broken: images that this attack was run on, and that it broke; success_rate = broken / attacked
    - forwards, backwards: passes, summed over images; those of certificates stand in the clean row
    - undecided: only in an unfinished run; images that have no verdict in this row yet. Those that were not attacked
      yet count as correct, `ci_low` is the lower end if all of them break, and ci_method is "unfinished"
    - errors: only if there are some; images that ended every worker process that worked on them. They are among the n
      and count as not correct, `ci_high` is the upper end if all of them are, and other columns leave them out
    - note: only if an automatic check found that results are not reliable: why, in a few words, in the rows of that
      threat, or in all rows of the model
    - abstained: only if a model is smoothed or randomized, or rejects images; in its clean row the images on which it
      abstains or which it rejects, which count as wrong
    - draw_accuracy, draw_ci_low, draw_ci_high: only if a model is randomized; the probability that a single one of its
      answers is right, mean over images at their last points, with a 95 % interval (the other columns are about the
      class that it answers most often)

    - median_distance, distance_low, distance_high: only if a radius is "minimum"; in the rows of that threat the median
      distance of the nearest error that the attack found, over all correctly classified images, with a 95 % interval
      (images without a known error count as infinitely far). There, `correct` counts images without a known error

    `samples` has one row per model x norm x eps x attack x image, with the columns SAMPLE_COLUMNS:

    - model, norm, eps, eps_text, attack, sample (the image's number in the data set), label
    - clean_pred, adv_pred: predicted classes without and with the attack; -1 where a smoothed or randomized model
      abstains, or a model rejects the image
    - verdict: "clean-wrong", "broken" or "robust"; "error" of an image that ended every worker process that worked on
      it (clean_pred is then -1)
    - queries_to_break: after how many queries of the trial that broke the image; restart, target: of that trial; all
      three are empty unless the verdict is "broken"
    - linf, l2, l1, l0: distances between the image and the attacked point
    - forwards, backwards: passes; 0 where a member of an ensemble left the image out ("robust", and the row repeats the
      point of the member before it), and where a smaller radius broke the image ("broken")
    - draw_accuracy: only if a model is randomized; the share of 16 fresh answers at the attacked point that are right
    - queries: only if an attack saw no gradients; its queries until the image was broken, or all, over all trials (of
      an image that was broken at a smaller radius, those spent there)
    - distances: only of such an attack without a radius; the distance of the nearest error after some queries, as
      "20:0.41 50:0.32"

    Of a smoothed model, rows of the attack "certified" have the verdict "clean-wrong", "certified" or "uncertified",
    the certain class in adv_pred, and its radius in the row's norm in a column of their own, `radius`.

    `corruptions` is empty unless corrupted images were judged; then it has one row per model x corruption, and one with
    the corruption "all", with the columns CORRUPTION_COLUMNS of `robustkit.evidence.corruptions`:

    - source ("generated", or the name of the folder), severities ("1-5"), n, accuracy: the mean over severities, or
      over corruptions too, with its 95 % interval over images; error = 1 - accuracy
    - baseline, ce, relative_ce: with a baseline, its name, the error divided by the baseline's, and the same of errors
      minus clean errors; in the row "all" mCE and relative mCE, the means over corruptions

    `corrupted` is empty likewise, or has one row per model x corruption x image, and one per clean image with the
    corruption "-": sample, label, severities (how many), correct (at how many of them the image is classified
    correctly), and pixels, the sum of the hashes of its pictures

    `manifest` has the keys "robustkit" (version), "identity" (what determines the result), "environment", "created",
    "finished" (None while unfinished), "command", "seconds" (of clean images and of each attack), "warnings"
    (sentences), and "corruption_baseline" (name and errors of the baseline of corruption errors), "randomized" (by
    randomized model: how it is judged), "bisected" (by attack: at how many radii it looked for the nearest error),
    "gradient_stops" (by model: the operations of its forward that pass no gradient on), "shard" (of a run about some of
    the images: its number from 1, how many there are, and when it was finished; "finished" is None).
    """

    folder: Path
    manifest: dict[str, Any]
    results: pd.DataFrame
    sample_rows: SampleRows  # of `samples`, without a data frame of them
    pictures: list[Picture]
    class_names: tuple[str, ...]
    corruptions: pd.DataFrame = field(default_factory=pd.DataFrame)
    checks: tuple[Check, ...] = ()  # of all models, in the order of the register; none if they were switched off
    corrupted: pd.DataFrame = field(default_factory=pd.DataFrame)
    given_name: str | None = None  # by `called`

    @property
    def samples(self) -> pd.DataFrame:
        """One row per model x norm x eps x attack x image; made when it is first asked for."""
        return self.sample_rows.frame

    @property
    def name(self) -> str:
        """The name in reports: that of its folder, or the one that `called` gave it; empty of a run in memory."""
        return self.folder.name if self.given_name is None else self.given_name

    def called(self, name: str) -> "Run":
        """The same run under another name."""
        return replace(self, given_name=name)

    def __repr__(self) -> str:
        """One line: models, data, radii, and whether it is unfinished."""
        models = list(dict.fromkeys(self.results["model"]))
        identity = self.manifest["identity"]
        radii = ", ".join(f"{norm} {eps}" for norm, eps in identity["threats"])
        state = "" if self.manifest["finished"] else ", unfinished"
        data = f"{identity['n']} images of {identity['dataset']['name']}"
        corrupted = "" if self.corruptions.empty else ", corruptions"
        return " ".join(
            f"<Run of {', '.join(models)} on {data}{f', {radii}' if radii else ''}{corrupted}{state}>".split()
        )

    def __str__(self) -> str:
        """The table that `robustkit evaluate` prints."""
        return str(_reports().table_text(self))

    def _repr_html_(self) -> str:
        """The same table in a notebook."""
        return f"<pre>{html.escape(str(self))}</pre>"

    def curve(self, radii: Sequence[float] | None = None) -> pd.DataFrame:
        """Accuracy against the radius, of a run with the radius "minimum"; see `robustkit.evidence.distances.curve`."""
        from robustkit.evidence.distances import curve

        return curve(self.samples, radii)

    def area(self, limit: float | None = None) -> pd.DataFrame:
        """The area under `curve`, with a bootstrap interval; see `robustkit.evidence.distances.area`."""
        from robustkit.evidence.distances import area

        return area(self.samples, limit)

    def query_curve(self, queries: Sequence[int] | None = None) -> pd.DataFrame:
        """What attacks without gradients reach within numbers of queries; see `robustkit.evidence.queries.curve`."""
        from robustkit.evidence.queries import curve

        return curve(self.samples, queries)

    def plot(self) -> "Figure":
        """A matplotlib figure of accuracy against the radius, a chart for each norm; see `robustkit.reports.plot`."""
        figure: Figure = _reports().plot(self)
        return figure

    def save_report(self, path: str | Path) -> None:
        """Write a report of this run alone: a page (.html), a table (.md, .tex), or all figures for programs (.json).

        Raises:
            UserError: the name ends in something else, or the file cannot be written.
        """
        target = user_path(path)
        if target.suffix.lower() not in (".html", ".htm", ".md", ".tex", ".json"):
            raise UserError(f"{target} must end in .html, .md, .tex or .json, which say what kind of report it is.")
        _reports().write_form([self], target)

    def adversarial(
        self, model: str | None = None, attack: str | None = None, *, norm: str | None = None,
        eps: str | float | None = None,
    ) -> "AdversarialExamples":  # fmt: skip
        """The adversarial examples of a run that was made with `keep_adversarial`, as tensors.

        Args:
            model: one of the run; needed if there are several.
            attack: one of the run, or an ensemble; None takes for each image the first attack that broke it.
            norm: likewise needed if there are several.
            eps: likewise.

        Raises:
            UserError: the run kept none, or it has several models or threats and none is named.
        """
        from robustkit.evidence.adversarial import chosen, read_examples

        if "adversarial" not in self.manifest or self.folder == Path():
            raise UserError(
                "This run kept no adversarial examples; evaluate into another folder with --keep-adversarial "
                "(keep_adversarial=True, out=...)."
            )
        return read_examples(self.folder, self.samples, chosen(self.manifest["identity"], model, attack, norm, eps))

    def write(self, folder: str | Path | None = None) -> None:
        """Write results.csv, samples.csv and report.html into the run's folder, or into another one.

        Raises:
            UserError: the run is in memory and no folder is named, or the folder cannot be written.
        """
        if folder is None and self.folder == Path():
            raise UserError("This run is in memory; name a folder: run.write('folder').")
        _reports().write_files(self, self.folder if folder is None else Path(folder))


def _reports() -> ModuleType:
    """The room of tables and pages. It stands above this one, so it is loaded by name, and only to show a run."""
    return import_module("robustkit.reports")
