"""`robustkit evaluate`: accuracy under attack as a table, CSV files and an HTML report."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from robustkit.errors import UserError
from robustkit.evidence.derived import DERIVED

from .conditions import check_conditions, check_measured
from .option_types import OpenShare, OutPath
from .options import (
    DEFAULT_THREAT,
    OTHER_RADII,
    RADIUS,
    config_option,
    corruption_options,
    data_options,
    device_option,
    growing_batch_size_option,
    mask_option,
    models_options,
    quiet_option,
    rejects_option,
    remedy_options,
    samples_option,
    seed_option,
    server_options,
    shard_option,
    smoothing_options,
    weights_options,
    workers_options,
)
from .output import check_writable, remove_if_empty, write_evaluation
from .repeated import OneValueEach
from .requests import evaluation_request
from .terminal import echo, print_report_path

if TYPE_CHECKING:
    from robustkit.evaluation.resolved import Evaluation
    from robustkit.evaluation.shard import Shard

_RUNS = Path("robustkit-runs")


@click.command(cls=OneValueEach)
@config_option
@models_options
@weights_options
@data_options
@click.option("-a", "--attack", "attacks", multiple=True, default=("default",), metavar="NAME[:K=V,...]",
              help="See `robustkit list attacks`; or FILE.npz with adversarial examples. Repeatable. "
                   "[default: the ensemble default]")  # fmt: skip
@click.option(
    "--surrogate",
    "surrogates",
    multiple=True,
    metavar="NAME",
    help="Transfer: attacks query this model, and their examples are tested on the others. Repeatable.",
)
@click.option("--surrogate-weights", multiple=True, metavar="FILE|NAME", help="Weights; one per surrogate.")
@click.option("--surrogate-ensemble", is_flag=True, help="Query all surrogates as one, the mean of their logits.")
@server_options("over all runs of this folder; then stop with the results so far")
@remedy_options
@rejects_option
@smoothing_options
@click.option(
    "--norm",
    "norms",
    multiple=True,
    help="Linf, L2, L1, L0, patch, frame, spatial, rotation, translation, flow, color, recolor, recolor_rgb or lpips. "
    f"Repeatable. {DEFAULT_THREAT}",
)
@click.option("--eps", "radii", multiple=True, metavar="EPS",
              help=f"{RADIUS}, L2:0.5 where there are several norms, {OTHER_RADII}. Repeatable. "
                   f"{DEFAULT_THREAT}")  # fmt: skip
@mask_option
@click.option("--audit", type=click.IntRange(min=1), metavar="K",
              help="Run AutoAttack on K random images that no other attack broke, and give an upper bound on the "
                   "share that it would break.")  # fmt: skip
@click.option("--checks", type=click.Choice(["none", "quick", "standard", "full"]), default="quick", show_default=True,
              help="How thoroughly to look for signs that the attacks failed: quick uses the results of the attacks, "
                   "standard and full run further attacks.")  # fmt: skip
@corruption_options(())
@click.option("--keep-adversarial", is_flag=True,
              help="Store every adversarial example in the run folder, as exact floats.")  # fmt: skip
@click.option("--fail-under", multiple=True, metavar="CONDITION",
              help='End with status 1 if an accuracy is lower, as in robustkit gate: "Linf@8/255>=0.40". '
                   "Repeatable.")  # fmt: skip
@samples_option(1000)
@click.option("--precision", type=OpenShare(0, 0.5), metavar="SHARE",
              help="Stop when the 95 % interval of every accuracy under attack is at most +- SHARE, such as 0.01, "
                   "or after --samples.")  # fmt: skip
@shard_option
@workers_options
@growing_batch_size_option
@device_option
@seed_option
@click.option("-o", "--out", type=OutPath(), help="Run folder. [default: robustkit-runs/NAME]")
@click.option("--no-fold", is_flag=True, help="Do not merge BatchNorm into convolutions while attacking (slower).")
@click.option(
    "--compile", "compiled", is_flag=True, help="Search with torch.compile; verdicts come from the plain model."
)
@click.option("--cuda-graphs", is_flag=True, help="Search with torch.compile and, on a GPU, with CUDA graphs.")
@click.option("--bf16", is_flag=True, help="Search in bfloat16; verdicts stay fp32.")
@click.option("--tf32", is_flag=True, help="Search in TF32 on a GPU that has it; verdicts stay fp32.")
@click.option("--plan", "plan_only", is_flag=True,
              help="Print the plan and an upper bound on its cost, without loading a model, then stop.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Like --plan, and predict the cost by attacking some of the images.")
@quiet_option
def evaluate(**options: Any) -> int:
    """Accuracy under attack: a table, results.csv, samples.csv and report.html in a run folder.

    The same command continues where it stopped; of a finished run it writes the files again and prints the table. With
    the same --out and more models, attacks, samples, norms or radii, or an audit, the run is extended.
    """
    if not options["models"]:
        raise UserError("No model is given; add --model NAME, for example --model resnet18.")
    check_conditions(options["fail_under"])
    if options["plan_only"] or options["dry_run"]:
        _stop_before_work(options)
        return 0
    return carry_out_in_folder(options)


def carry_out_in_folder(options: dict[str, Any]) -> int:
    """Carry out an evaluation in its run folder, and return the exit status; Ctrl-C ends it with status 130."""
    _say_if_shard_is_ignored(options["shard"])
    place = options["out"] or _RUNS
    check_writable(place, DERIVED if options["out"] else ())
    try:
        return _work(options)
    except KeyboardInterrupt:
        out = options["out"]
        if out is not None and (out / "run.sqlite").exists():
            advice = f"Finished images are stored in {out}. The same command goes on where it stopped."
        else:
            advice = "The same command goes on after the last image that was stored, or begins again if none was."
        echo(f"Interrupted. {advice}", err=True)
        sys.exit(130)
    finally:
        remove_if_empty(place)


def _stop_before_work(options: dict[str, Any]) -> None:
    from .planned import print_plan

    print_plan(options)
    if options["dry_run"]:
        from .dry import print_prediction

        print_prediction(options)


def _say_if_shard_is_ignored(shard: str | None) -> None:
    from robustkit.evaluation.shard import ignored_shard

    sentence = ignored_shard(os.environ) if shard is None else None
    if sentence is not None:
        echo(sentence, err=True)


def _work(options: dict[str, Any]) -> int:
    from robustkit.evaluation.evaluation import carry_out
    from robustkit.evaluation.resolved import resolve
    from robustkit.host.bars import Bars

    with Bars(options["quiet"]) as bars:
        evaluation = resolve(evaluation_request(options, bars))
        check_measured(options["fail_under"], evaluation.plan)
        out = options["out"] = evaluation.folder(options["out"] or _RUNS / _folder_name(evaluation))
        run = carry_out(evaluation, out, bars)
    write_evaluation(run, out)
    more = "" if run.corruptions.empty else "corruptions.csv  "
    files = f"  results.csv  samples.csv  {more}run.sqlite"
    print_report_path(out / "report.html", f"{out}{os.sep}  report.html", files)
    if evaluation.shard is not None:
        _print_merging(evaluation.shard, out)
        return 0
    if not options["fail_under"]:
        return 0
    from robustkit.comparison.gate import gate

    from .gate import print_checks, status_of

    found = gate(run, fail_under=list(options["fail_under"]))
    echo("")
    print_checks(found)
    return status_of(found)


def _print_merging(shard: "Shard", folder: Path) -> None:
    """How the whole run is made, of whose images this shard has some; conditions are about the whole."""
    place = folder.parent
    others = folder.name.replace(f"-{shard.index}-", "-*-", 1)
    echo(f"\nShard {shard.text} is finished. When all are: robustkit merge {place / others} --out {place / 'merged'}")


def _folder_name(evaluation: "Evaluation") -> str:
    """A name with a hash of everything that determines the results, so that the same command finds them again."""
    from robustkit.evaluation.identity import digest, identity_of

    models = "+".join(classifier.name for classifier in evaluation.classifiers[:3])
    text = "".join(
        letter if letter.isalnum() or letter in "+-_." else "-" for letter in f"{models}-{evaluation.data.name}"
    )
    return f"{shortened(text, 60)}-{digest(identity_of(evaluation))}"


def shortened(text: str, most: int) -> str:
    """The text, cut between two of its words if it has more than so many letters; a longer word is cut itself."""
    if len(text) <= most:
        return text
    ends = [number for number, letter in enumerate(text[: most + 1]) if letter in "+-_."]
    return text[: ends[-1] if ends and ends[-1] else most]
