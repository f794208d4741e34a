"""`robustkit corruptions`: accuracy on corrupted images, without an attack."""

from typing import Any

import click

from robustkit.errors import UserError

from .evaluate import carry_out_in_folder, evaluate
from .option_types import OutPath
from .options import (
    batch_size_option,
    config_option,
    corruption_options,
    data_options,
    device_option,
    models_options,
    quiet_option,
    samples_option,
    seed_option,
    server_options,
    shard_option,
    weights_options,
    workers_options,
)
from .repeated import OneValueEach


@click.command(cls=OneValueEach)
@config_option
@models_options
@weights_options
@data_options
@server_options("over all runs of this folder; then stop with the results so far")
@corruption_options(("generated",))
@click.option("--probabilities", is_flag=True, help="The models return probabilities, not logits.")
@samples_option(1000)
@batch_size_option
@device_option
@shard_option
@workers_options
@seed_option
@click.option("-o", "--out", type=OutPath(), help="Run folder. [default: robustkit-runs/NAME]")
@quiet_option
def corruptions(**options: Any) -> None:
    """Accuracy on corrupted images: noise, blur, weather and digital corruptions at five severities.

    Writes a run folder like `evaluate`, with corruptions.csv: means over severities, and mCE with a baseline. The same
    command continues where it stopped. With the same --out, `evaluate --corruptions generated` adds attacks to the run.
    """
    if not options["models"]:
        raise UserError("No model is given; add --model NAME, for example --model resnet18.")
    carry_out_in_folder(_without_attacks() | options)


def _without_attacks() -> dict[str, Any]:
    """All options of `evaluate` as they are if none is given, but for its attack."""
    return {**evaluate.make_context("evaluate", []).params, "attacks": ()}
