"""`robustkit finetune`: adversarial fine-tuning, and an evaluation before and after it."""

import copy
import os
import shlex
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from robustkit.errors import UserError
from robustkit.evidence.derived import DERIVED

from .options import data_of, input_options, require_model, run_options, threat_options, val_share_option
from .output import output_folder, write_evaluation
from .processes import process_team
from .repeated import OneValueEach
from .requests import evaluation_before_and_after
from .terminal import echo
from .training import TrainingInputs, model_of, training_inputs

if TYPE_CHECKING:
    from robustkit.data import Dataset
    from robustkit.evaluation.threats import Threat
    from robustkit.host.bars import Bars
    from robustkit.models import PixelModel

    from .wings import defenses

_OUT = Path("robustkit-tuned")


@click.command(cls=OneValueEach)
@input_options
@val_share_option
@threat_options("Linf, L2 or L1")
@click.option("--preset", default="safe", show_default=True, metavar="fast|safe|strong",
              help="Recipe of the training.")  # fmt: skip
@click.option("--set", "choices", multiple=True, metavar="KEY=VALUE",
              help="Another choice of the recipe, such as epochs=20 or freeze=prefix:layer1. Repeatable.")  # fmt: skip
@click.option("-a", "--attack", "attacks", multiple=True, default=("default",), metavar="NAME[:K=V,...]",
              help="Attack of the evaluation at the end. Repeatable. [default: the ensemble default]")  # fmt: skip
@click.option("--plan", "plan_only", is_flag=True, help="Print the plan and its cost, then stop.")
@run_options(_OUT)
def finetune(**options: Any) -> None:
    """Adversarial fine-tuning: model.safetensors, history.csv, and an evaluation before and after.

    The same command again goes on where it stopped. On several GPUs: torchrun --nproc-per-node N -m robustkit finetune
    ..., each process learning from its share of every batch.
    """
    with process_team(options["device"]) as team:
        require_model(options)
        if options["plan_only"]:
            if team.first:
                _print_plan(options)
            return
        place = output_folder(options["out"], (*DERIVED, "history.csv"), "training.safetensors")
        with place if team.first else nullcontext():
            _work(options, team)


def _work(options: dict[str, Any], team: "defenses.Team") -> None:
    from robustkit.evaluation.evaluation import carry_out
    from robustkit.host.bars import Bars

    from .wings import defenses

    out = options["out"]
    train, val, test, recipe, threat = _inputs(options, team.in_turn(lambda leads: data_of(options)))
    _check_unused(out)
    with Bars(options["quiet"] or not team.first) as bars:
        # One process per machine trains or downloads the model; the others read it from the cache.
        model = team.in_turn(
            lambda leads: _trainable({**options, "retrain": options["retrain"] and leads}, test, bars)
        ).to(team.device)
        before = copy.deepcopy(model)
        tuned = defenses.finetune(
            model, train, val, eps=threat.eps_text, norm=threat.norm, recipe=recipe, out=out, test=test, watch=bars
        )
        if not team.first:
            return
        _store(options, model, tuned)
        evaluation = evaluation_before_and_after([before, model], options, test, threat, bars)
        run = carry_out(evaluation, out, bars)
    write_evaluation(run, out)
    echo(f"\n{out}{os.sep}  model.safetensors  history.csv  report.html  results.csv  samples.csv  run.sqlite")
    words = [*_model_words(options), *_data_words(options), *_threat_words(recipe.attack, threat)]
    echo(f"Evaluate it: {shlex.join(['robustkit', 'evaluate', *words])}")


def _inputs(options: dict[str, Any], test: "Dataset") -> TrainingInputs:
    """The training's inputs. Also checks the attacks of the final evaluation, before the training and not after it."""
    from robustkit.evaluation.plan import plan

    inputs = training_inputs(options, test)
    plan(options["attacks"], [inputs.threat])
    return inputs


def _trainable(options: dict[str, Any], test: "Dataset", bars: "Bars") -> "PixelModel":
    """The model of the options, if it can be loaded again with the weights that the training finds."""
    from robustkit.models.programs import is_from_file

    model = model_of(options, test, bars)
    if is_from_file(model.network):
        raise UserError(
            f"{options['model']} holds code and weights in one, and no other weights can be loaded into it; fine-tune "
            "the module that it was saved from: --model FILE.py:NAME --weights FILE."
        )
    return model


def _store(options: dict[str, Any], model: "PixelModel", tuned: "defenses.Tuned") -> None:
    """Name the tuned model, and write it and the history of its training."""
    from robustkit.host.files import write_text
    from robustkit.models.model_file import architecture_of, save_model

    from .wings import defenses

    if options["quiet"]:
        # Notes are results, not progress: --quiet does not hide them.
        for note in tuned.notes:
            echo(note, err=True)
    model.name = f"{model.name}-tuned"
    file = options["out"] / "model.safetensors"
    more = {"recipe": str(tuned.recipe), "notes": tuned.notes}
    save_model(file, model, architecture_of(options["model"]), model.name, more)
    defenses.drop_weights(options["out"])
    write_text(options["out"] / "history.csv", tuned.history.to_csv(index=False, lineterminator="\n"))


def _model_words(options: dict[str, Any]) -> list[str]:
    """The options that name the tuned model; they also name code and folders, which weights must not choose."""
    from robustkit.models.prefixes import prefixed
    from robustkit.primitives import user_code

    file, given, classes = str(options["out"] / "model.safetensors"), options["model"], options["num_classes"]
    if not user_code.is_file(given) and prefixed(given) is None:
        return ["--model", file]  # the file says what network it is for, and how many classes it has
    return ["--model", given, "--weights", file, *([] if classes is None else ["--num-classes", str(classes)])]


def _data_words(options: dict[str, Any]) -> list[str]:
    """The options that name the test images; those with their default are left out, but for the name of the data."""
    given = {"--data-dir": options["data_dir"], "--image-size": options["image_size"],
             "--split": None if options["split"] == "test" else options["split"]}  # fmt: skip
    more = (word for option, value in given.items() if value is not None for word in (option, str(value)))
    return ["--dataset", options["dataset"], *more, *(["--gray"] if options["gray"] else [])]


def _threat_words(attack: object, threat: "Threat") -> list[str]:
    """The options of the threat; a network trained with noise is evaluated as a smoothed classifier."""
    from robustkit.primitives.registry import parsed

    # Only this inner attack is sure to be written as NAME:KEY=VALUE.
    if not isinstance(attack, str) or attack.strip().lower().partition(":")[0] != "gaussian":
        return ["--norm", threat.norm, "--eps", threat.eps_text]
    sigma = str(parsed(attack)[1]["sigma"])
    # Certificates are in L2, whatever the norm of the training; of about sigma most images have one.
    return ["--smooth", sigma, "--norm", "L2", "--eps", threat.eps_text if threat.norm == "L2" else sigma]


def _check_unused(out: Path) -> None:
    from robustkit.models.model_file import check_replaceable

    from .wings import reports

    check_replaceable(out / "model.safetensors")
    history = out / "history.csv"
    if history.exists() and reports.read_history(history) is None:
        raise UserError(
            f"{history} was not written by robustkit, so it is not replaced; give another --out, or move it."
        )
    if (out / "run.sqlite").exists() and not (out / "training.safetensors").exists():
        raise UserError(f"{out} holds an evaluation and no training; give another --out.")


def _print_plan(options: dict[str, Any]) -> None:
    from robustkit.host.bars import Bars

    from .wings import defenses

    train, val, test, recipe, threat = _inputs(options, data_of(options))
    with Bars(options["quiet"]) as bars:
        model = _trainable(options, test, bars)
    defenses.checked_recipe(model, train, val, recipe, eps=threat.eps_text, norm=threat.norm)
    echo(defenses.explain(model, train, recipe, eps=threat.eps_text, norm=threat.norm, held_out=len(val)))
