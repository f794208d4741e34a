"""`robustkit finetune`: a network made robust, and a report of it before and after."""

import copy
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from robustkit.errors import UserError

from .options import (
    config_option,
    data_of,
    data_options,
    device_option,
    one_model_options,
    out_option,
    quiet_option,
    require_model,
    seed_option,
    threat_options,
    val_share_option,
)
from .places import writing
from .processes import together
from .requests import before_and_after_setting
from .training import model_of, recipe_of, threat_of, training_data

_OUT = Path("robustkit-tuned")


@click.command()
@config_option
@one_model_options
@data_options
@val_share_option
@threat_options("Linf, L2 or L1")
@click.option("--preset", default="safe", show_default=True, metavar="fast|safe|strong")
@click.option("--set", "choices", multiple=True, metavar="KEY=VALUE",
              help="Another choice of the recipe, such as epochs=20 or freeze=prefix:layer1. Repeatable.")  # fmt: skip
@click.option("-a", "--attack", "attacks", multiple=True, default=("standard",), show_default="standard",
              metavar="NAME[:K=V,...]", help="Of the evaluation at the end. Repeatable.")  # fmt: skip
@click.option("--explain", is_flag=True, help="Print what would be done and what it costs, then stop.")
@device_option
@seed_option
@out_option(_OUT)
@quiet_option
def finetune(**options: Any) -> None:
    """Adversarial fine-tuning: model.safetensors, history.csv, and an evaluation before and after.

    The same command again goes on where it stopped. On several GPUs: torchrun --nproc-per-node N -m robustkit finetune
    ..., each process learning from its share of every batch.
    """
    with together(options["device"]) as team:
        require_model(options)
        if options["explain"]:
            if team.first:
                _explain(options)
            return
        place = writing(options["out"], "The same command goes on after the last epoch that was kept.")
        with place if team.first else nullcontext():
            _work(options, team)


def _work(options: dict[str, Any], team: Any) -> None:
    from rich.console import Console

    from robustkit.evaluation.evaluation import carry_out
    from robustkit.evaluation.plan import plan
    from robustkit.models.model_file import save_model

    from .watch import Bars
    from .wings import defenses, reports

    out, test = options["out"], team.in_turn(lambda leads: data_of(options))
    train, val = training_data(test, options["val_share"])
    recipe = recipe_of(options)
    threat = threat_of(options, test)
    # What the end needs is looked at before the training, not after it.
    plan(options["attacks"], [threat])
    _check_free(out)
    with Bars(options["quiet"] or not team.first) as bars:
        # What the process that leads has trained or fetched lies ready for the others of its machine.
        model = team.in_turn(
            lambda leads: model_of({**options, "retrain": options["retrain"] and leads}, test, bars)
        ).to(team.device)
        before = copy.deepcopy(model)
        tuned = defenses.finetune(
            model, train, val, eps=threat.eps_text, norm=threat.norm, recipe=recipe, out=out, test=test, watch=bars
        )
        if not team.first:
            return
        if options["quiet"]:
            # What came of it is no progress.
            for note in tuned.notes:
                click.echo(note, err=True)
        model.name = f"{model.name}-tuned"
        architecture = options["model"]
        save_model(out / "model.safetensors", model, architecture, model.name, {"recipe": str(tuned.recipe)})
        tuned.history.to_csv(out / "history.csv", index=False)
        setting = before_and_after_setting([before, model], options, test, threat, bars)
        run = carry_out(setting, out, bars)
    reports.write_csv(run, out)
    reports.write_report([run], out / "report.html")
    reports.print_table(run, Console())
    click.echo(f"\n{out}{os.sep}  model.safetensors  history.csv  report.html  results.csv  samples.csv  run.sqlite")
    words = f"--model {out / 'model.safetensors'} --dataset {options['dataset']}{_smoothed(recipe.attack)}"
    click.echo(f"Use it: robustkit evaluate {words}")


def _smoothed(attack: str) -> str:
    """The option that smooths a network trained on noise, as it is meant to be used."""
    from robustkit.primitives.registry import parsed

    # Not every inner attack reads as NAME:KEY=VALUE; this one does.
    if attack.strip().lower().partition(":")[0] != "gaussian":
        return ""
    return f" --smooth {parsed(attack)[1]['sigma']} --norm L2"


def _check_free(out: Path) -> None:
    if (out / "run.sqlite").exists() and not (out / "training.safetensors").exists():
        raise UserError(f"{out} holds an evaluation and no training; give another --out.")


def _explain(options: dict[str, Any]) -> None:
    from robustkit.evaluation.plan import plan

    from .watch import Bars
    from .wings import defenses

    test = data_of(options)
    train, val = training_data(test, options["val_share"])
    recipe, threat = recipe_of(options), threat_of(options, test)
    plan(options["attacks"], [threat])
    with Bars(options["quiet"]) as bars:
        model = model_of(options, test, bars)
    defenses.checked_recipe(model, train, val, recipe, eps=threat.eps_text, norm=threat.norm)
    click.echo(defenses.explain(model, train, recipe, eps=threat.eps_text, norm=threat.norm, held_out=len(val)))
