"""`--plan`: the plan of an evaluation and an upper bound on its cost, without loading a model."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .conditions import check_measured
from .options import data_of
from .requests import sample_count, smoothing_of
from .terminal import echo

if TYPE_CHECKING:
    from robustkit.classifier.smoothing import Smoothing
    from robustkit.data import Dataset
    from robustkit.evaluation.check_costs import CheckCost
    from robustkit.evaluation.plan import Plan

_UNCOUNTED = "straight_through"  # the check that most models do not need


def print_plan(options: dict[str, Any]) -> None:
    """Print the cells of the plan with upper bounds on their forward and backward passes."""
    from robustkit.data import pick
    from robustkit.data.examples import with_examples
    from robustkit.data.masks import masks_of_data
    from robustkit.evaluation.check_costs import checks_at_most
    from robustkit.evaluation.classifiers import checked_names
    from robustkit.evaluation.plan import plan
    from robustkit.evaluation.precision import fewest_images
    from robustkit.evaluation.resolved import check_smoothable
    from robustkit.evaluation.threats import threats_of
    from robustkit.models import require_known

    for name in (*options["models"], *options["surrogates"]):
        require_known(name)
    checked_names(options["names"], len(options["models"]))
    data = data_of(options)
    mask = None if options["mask"] is None else masks_of_data(options["mask"], data)
    threats = threats_of(options["norms"], options["radii"], data.threats, mask)
    surrogates = options["surrogates"]
    queried = ["+".join(surrogates)] if options["surrogate_ensemble"] and surrogates else surrogates
    numbers = pick(len(data), sample_count(options["samples"]))
    planned = plan(with_examples(options["attacks"], data, numbers), threats, queried, options["audit"])
    check_measured(options["fail_under"], planned)
    smoothing = smoothing_of(options)
    if smoothing is not None:
        check_smoothable(planned)
    images = len(numbers)
    models = len(options["models"])
    echo(f"{models} model{'s' * (models > 1)} on {images} image{'s' * (images > 1)} of {data.name} {data.split}; "
         "at most, per model:")  # fmt: skip
    corrupted = _print_corruptions(options, data, images, 1 if smoothing is None else smoothing.judges)
    checks = checks_at_most([str(number) for number in range(len(options["models"]))], planned, options["checks"],
                            images, smoothed=smoothing is not None, stops=not options["straight_through"])  # fmt: skip
    earlier = fewest_images(options["precision"], len(data), images) < images
    _print_costs(planned, images, len(options["models"]), options["eot"], smoothing, checks, corrupted, earlier=earlier)


def _print_corruptions(options: dict[str, Any], data: "Dataset", images: int, per_verdict: int) -> int:
    """The forwards of the verdicts on corrupted images of one model."""
    from robustkit.common_corruptions.choice import corruption_suite

    if not options["corruptions"]:
        return 0
    suite = corruption_suite(options["corruptions"], data, options["seed"], options["severities"])
    forwards = images * len(suite.cells) * per_verdict
    echo(f"  {'corruptions x severities, one verdict each':<54}{forwards:>14,}{0:>14,}")
    return forwards


def _print_costs(
    planned: "Plan", images: int, models: int, eot: int | None, smoothing: "Smoothing | None",
    checks: Sequence["CheckCost"], corrupted: int, *, earlier: bool,
) -> None:  # fmt: skip
    from robustkit.classifier.classifier import DRAWS_PER_QUERY
    from robustkit.classifier.oracle import OracleCost

    copies = 1 if smoothing is None else eot or DRAWS_PER_QUERY
    per_verdict = 1 if smoothing is None else smoothing.judges
    per_clean_image = 1 if smoothing is None else smoothing.polled
    threats = [f"{cell.threat.norm} {cell.threat.eps_text}" for cell in planned.attacks]
    width = max(14, *(2 + len(threat) for threat in threats))
    echo(f"  {'attack':<28}{'threat':<{width}}{'trials/image':>12}{'forwards':>14}{'backwards':>14}")
    forwards, backwards = corrupted, 0
    for cell, threat in zip(planned.attacks, threats, strict=True):
        attacked = images if cell.column.audit is None else min(images, cell.column.audit)
        most = cell.at_most(OracleCost(copies if cell.column.surrogate is None else 1, per_verdict))
        cell_forwards, cell_backwards = (attacked * count for count in most)
        forwards, backwards = forwards + cell_forwards, backwards + cell_backwards
        echo(f"  {cell.name:<28}{threat:<{width}}{cell.attack.trials:>12}{cell_forwards:>14,}{cell_backwards:>14,}")
    counted = [each for each in checks if each.check != _UNCOUNTED]
    if counted:
        echo(f"  {'check':<28}{'threat':<{width}}{'images':>12}{'forwards':>14}{'backwards':>14}")
    for check in counted:
        images_of, check_forwards, check_backwards = (round(each) for each in check[2:5])
        forwards, backwards = forwards + check_forwards, backwards + check_backwards
        numbers = f"{images_of:>12,}{check_forwards:>14,}{check_backwards:>14,}"
        echo(f"  {check.check:<28}{check.threat:<{width}}{numbers}")
    if smoothing is not None:
        echo(f"  {'certificates, for all radii':<54}{images * per_clean_image:>14,}{0:>14,}")
    for check in checks:
        if check.check == _UNCOUNTED:
            echo(
                f"Where a model's forward stops gradients (rounding, detach, argmax), the check {check.check} at "
                f"{check.threat} adds at most {check.forwards:,.0f} forwards and {check.backwards:,.0f} backwards."
            )
    echo("A trial is one restart on one image, towards one target class if the attack has target classes.")
    echo(
        f"In all at most {models * (forwards + images * per_clean_image):,} forwards and {models * backwards:,} "
        "backwards, each of one image; the run needs fewer: a broken image gets no further pass, and members of an "
        "ensemble may leave images out"
        f"{', and --precision may stop earlier' if earlier else ''}. "
        "Images whose two best classes differ only by rounding are queried again; that is not counted."
    )
    if smoothing is not None:
        echo(
            f"Smoothed: {copies} noisy copies per query, {per_verdict:,} per verdict and {per_clean_image:,} per clean "
            f"image; a point that looks broken and is not adds {per_verdict:,}. No L2 radius exceeds "
            f"{smoothing.reach:.3g}."
        )
