"""`--dry-run`: the passes that an evaluation will need, predicted from some of its images. Nothing is written."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from robustkit.errors import UntrainedError

from .requests import evaluation_request
from .terminal import echo

if TYPE_CHECKING:
    from robustkit.evaluation.prediction import Prediction


def print_prediction(options: dict[str, Any]) -> None:
    """Print the predicted passes of each attack on each model, or why there is no prediction."""
    from robustkit.evaluation.precision import fewest_images
    from robustkit.evaluation.prediction import predicted
    from robustkit.evaluation.resolved import resolve
    from robustkit.host.bars import Bars

    try:
        with Bars(options["quiet"]) as bars:
            evaluation = resolve(evaluation_request(options, bars), may_train=False)
            predictions = [predicted(evaluation, each, bars) for each in evaluation.classifiers]
    except UntrainedError as error:
        echo(f"\nNo prediction: {error}")
        return
    images = len(evaluation.ids)
    earlier = fewest_images(evaluation.precision, len(evaluation.data), images) < images
    for each in predictions:
        _print_costs(each, images, at_most=earlier)
    forwards, backwards = (sum(getattr(each, kind) for each in predictions) for kind in ("forwards", "backwards"))
    spent = sum(each.spent for each in predictions)
    share = "" if evaluation.shard is None else f" Each of {evaluation.shard.count} shards needs about an equal part."
    echo(
        f"In all {'at most about' if earlier else 'about'} {_rounded(forwards)} forwards and {_rounded(backwards)} "
        f"backwards, each of one image, usually within a factor of two{_remark(predictions, earlier=earlier)}; the "
        f"dry run itself needed {spent:,} passes.{share}"
    )


def _print_costs(prediction: "Prediction", images: int, *, at_most: bool) -> None:
    echo(f"\n{prediction.model}, predicted from {prediction.images} of the {images} images, chosen at random:")
    echo(f"  {'attack':<28}{'threat':<14}{'images':>12}{'forwards':>14}{'backwards':>14}")
    for each in prediction.costs:
        sign = "<=" if each.bound or at_most else ""
        numbers = "".join(f"{sign + _rounded(value):>{width}}" for value, width in (
            (each.images, 12), (each.forwards, 14), (each.backwards, 14)))  # fmt: skip
        echo(f"  {each.attack:<28}{each.threat:<14}{numbers}")


def _remark(predictions: Sequence["Prediction"], *, earlier: bool) -> str:
    if earlier:
        return " for all images, and <= because --precision may stop earlier"
    bounds = any(each.bound for prediction in predictions for each in prediction.costs)
    return " except for the upper bounds, marked <=" if bounds else ""


def _rounded(value: float) -> str:
    return f"{round(value):,}"
