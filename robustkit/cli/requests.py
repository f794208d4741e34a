"""What the options of a command ask the evaluation for."""

from typing import TYPE_CHECKING, Any

from robustkit.errors import UserError

from .options import data_of

if TYPE_CHECKING:
    from robustkit.data import Dataset
    from robustkit.evaluation.setting import Setting


def evaluation_setting(options: dict[str, Any], bars: Any) -> "Setting":
    """The setting of `robustkit evaluate`."""
    from robustkit.evaluation.setting import Numerics, resolved

    return resolved(
        options["models"], dataset=data_of(options), attacks=options["attacks"], norm=options["norms"],
        eps=options["radii"], samples=None if options["samples"] == "all" else options["samples"],
        batch_size=options["batch_size"], device=options["device"], seed=options["seed"],
        weights=options["weights"] or None, num_classes=options["num_classes"], mean=options["mean"],
        std=options["std"],
        numerics=Numerics(not options["no_fold"], None, options["compiled"], options["bf16"]), watch=bars,
        train=options["train"], retrain=options["retrain"], remedies=remedies_of(options),
        surrogates=options["surrogates"], surrogate_weights=options["surrogate_weights"],
        smooth=smoothing_of(options),
    )  # fmt: skip


def setting_of(options: dict[str, Any], attack: str, bars: Any) -> "Setting":
    """The setting of a command about one model in one threat model."""
    from robustkit.evaluation.setting import Numerics, resolved

    return resolved(
        [options["model"]], dataset=data_of(options), attacks=[attack],
        norm=[options["norm"]] if options["norm"] else [], eps=[options["eps"]] if options["eps"] else [],
        samples=None if options["samples"] == "all" else options["samples"], batch_size=options["batch_size"],
        device=options["device"], seed=options["seed"], weights=[options["weights"]] if options["weights"] else None,
        num_classes=options["num_classes"], mean=options["mean"], std=options["std"], numerics=Numerics(),
        remedies=remedies_of(options), watch=bars, train=options["train"], retrain=options["retrain"],
    )  # fmt: skip


def before_and_after_setting(
    models: list[Any], options: dict[str, Any], data: "Dataset", threat: Any, bars: Any
) -> "Setting":
    """The setting of the evaluation at the end of `robustkit finetune`."""
    from robustkit.evaluation.setting import Numerics, Remedies, resolved

    return resolved(
        models, dataset=data, attacks=options["attacks"], norm=[threat.norm], eps=[threat.eps_text], samples=1000,
        batch_size="auto", device=options["device"], seed=options["seed"], weights=None, num_classes=None, mean=None,
        std=None, numerics=Numerics(), remedies=Remedies(), watch=bars,
    )  # fmt: skip


def remedies_of(options: dict[str, Any]) -> Any:
    """The remedies that the options name."""
    from robustkit.classifier.surrogate_gradients import stand_ins
    from robustkit.evaluation.setting import Remedies

    return Remedies(stand_ins(options["bpda"]), options["eot"], options["probabilities"])


def smoothing_of(options: dict[str, Any]) -> Any:
    """How the options say that models are smoothed; None for not at all.

    Raises:
        UserError: a value is out of range, or there is one for a smoothing that is not asked for.
    """
    from robustkit.classifier.smoothing import Smoothing

    chosen = {"n": options["smooth_draws"], "alpha": options["smooth_alpha"]}
    given = {name: value for name, value in chosen.items() if value is not None}
    if options["smooth"] is not None:
        return Smoothing(options["smooth"], **given)
    if given:
        raise UserError("--smooth-draws and --smooth-alpha are for a smoothed classifier; add --smooth SIGMA.")
    return None
