"""`robustkit trace`: where a perturbation grows on its way through a network, as a table, a page and files."""

import os
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .config import read_config
from .options import CountOr, data_options, model_options, remedy_options, require_model, setting_of
from .places import writing

if TYPE_CHECKING:
    from robustkit.evaluation.setting import Setting
    from robustkit.tracing import Album, Traced

    from .watch import Bars

_OUT = Path("robustkit-trace")
_LARGE = 3 * 64 * 64  # values per image above which the page shows fewer of them, to stay small enough to mail
_FEW = 3


@click.command()
@click.option("--config", type=click.Path(path_type=Path), callback=read_config, is_eager=True, expose_value=False,
              help="TOML file with these options; what stands on the command line wins.")  # fmt: skip
@click.option("-m", "--model", required=False, metavar="NAME", help="torchvision name, timm:NAME or file.py:factory.")
@click.option("--weights", metavar="FILE|NAME", help="Checkpoint, or published weights.")
@model_options
@data_options
@remedy_options
@click.option("-a", "--attack", default="pgd:steps=20", show_default=True, metavar="NAME[:K=V,...]",
              help="See `robustkit list attacks`.")  # fmt: skip
@click.option("--norm", help="Linf, L2, L1 or L0. [default: usual for the data]")
@click.option("--eps", metavar="EPS", help="8/255 or 0.5, pixels in [0, 1]. [default: usual for the data]")
@click.option("-n", "--samples", type=CountOr("all"), default=64, show_default=True, help="Images, in a fixed order.")
@click.option("--layer", "layers", multiple=True, metavar="NAME|GLOB",
              help="Layers to follow and to show. Repeatable. [default: all that run]")  # fmt: skip
@click.option("-b", "--batch-size", type=CountOr("auto"), default="auto", show_default=True, help="Images in flight.")
@click.option("--device", default="auto", show_default=True)
@click.option("--seed", type=click.IntRange(min=0, max=2**31 - 1), default=0, show_default=True)
@click.option("-o", "--out", type=click.Path(path_type=Path), default=_OUT, show_default=True, help="Folder.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def trace(**options: Any) -> None:
    """Where a perturbation grows, layer by layer: a table, trace.html with pictures, trace.csv and trace.json."""
    require_model(options)
    with writing(options["out"]):
        _work(options)


def _work(options: dict[str, Any]) -> None:
    from rich.console import Console

    from .watch import Bars

    out = options["out"]
    with Bars(options["quiet"]) as bars, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        setting = setting_of(options, options["attack"], bars)
        traced, pictures = _traced(setting, options, bars)
    for text in dict.fromkeys(str(warning.message) for warning in said):
        click.echo(f"Warning: {text}", err=True)
    reports = import_module("robustkit.reports.trace.page")
    about = reports.TraceContext(
        f"{setting.data.name} {setting.data.split}".strip(), setting.data.class_names,
        " ".join(["robustkit", *sys.argv[1:]]),
    )  # fmt: skip
    reports.write_trace(traced, pictures, out, about)
    import_module("robustkit.reports.trace.terminal").print_trace(traced, Console())
    click.echo(f"\n{out}{os.sep}  trace.html  trace.csv  trace.json")


def _traced(setting: "Setting", options: dict[str, Any], bars: "Bars") -> "tuple[Traced, Album]":
    from robustkit.tracing import album
    from robustkit.tracing import trace as follow

    (classifier,), threat = setting.classifiers, setting.plan.threats[0]
    layers = list(options["layers"]) or None
    x, y = setting.data.batch(setting.ids)
    bars.say(f"{options['attack']} at {threat.norm} {threat.eps_text} on {len(x)} images, then layer by layer")
    traced = follow(
        classifier, x, y, attack=options["attack"], norm=threat.norm, eps=threat.eps_text, layers=layers,
        seed=options["seed"], batch_size=setting.slots or 64, numbers=setting.ids,
    )  # fmt: skip
    return traced, album(classifier, traced, layers=layers, **({"images": _FEW} if x[0].numel() > _LARGE else {}))
