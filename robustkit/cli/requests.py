"""Evaluation requests from the options of a command."""

from typing import TYPE_CHECKING, Any

from robustkit.errors import UserError

from .options import data_of

if TYPE_CHECKING:
    from robustkit.black_box import RemoteAccess
    from robustkit.classifier.smoothing import Smoothing
    from robustkit.data import Dataset
    from robustkit.evaluation.request import EvaluationRequest
    from robustkit.evaluation.resolved import Evaluation


def evaluation_request(options: dict[str, Any], bars: Any) -> "EvaluationRequest":
    """The request of `robustkit evaluate`."""
    from robustkit.evaluation.request import EvaluationRequest, Numerics

    return EvaluationRequest(
        options["models"], dataset=data_of(options), attacks=options["attacks"], norm=options["norms"],
        eps=options["radii"], mask=options["mask"], samples=sample_count(options["samples"]),
        batch_size=options["batch_size"], device=options["device"], seed=options["seed"],
        weights=options["weights"] or None, names=options["names"],
        numerics=Numerics(
            not options["no_fold"], None, options["compiled"], options["cuda_graphs"], options["bf16"], options["tf32"]
        ),
        surrogates=options["surrogates"], surrogate_weights=options["surrogate_weights"],
        surrogate_ensemble=options["surrogate_ensemble"], rejects=options["rejects"],
        smooth=smoothing_of(options), audit=options["audit"], precision=options["precision"],
        corruptions=options["corruptions"], severities=options["severities"],
        corruption_baseline=options["corruption_baseline"],
        remote=remote_of(options),
        keep_adversarial=options["keep_adversarial"], declared=options["fail_under"], checks=options["checks"],
        shard=options["shard"], workers=options["workers"], backend=options["backend"],
        ray_address=options["ray_address"], watch=bars, **loading_of(options), **remedies_of(options),
    )  # fmt: skip


def evaluation_of_one_model(options: dict[str, Any], attack: str, bars: Any) -> "Evaluation":
    """The evaluation of a command about one model in one threat model."""
    from robustkit.evaluation.request import EvaluationRequest
    from robustkit.evaluation.resolved import resolve

    return resolve(EvaluationRequest(
        options["model"], dataset=data_of(options), attacks=attack, norm=options["norm"] or (),
        eps=options["eps"] or (), samples=sample_count(options["samples"]), batch_size=options["batch_size"],
        device=options["device"], seed=options["seed"], weights=options["weights"] or None, watch=bars,
        **loading_of(options), **remedies_of(options),
    ))  # fmt: skip


def evaluation_before_and_after(
    models: list[Any], options: dict[str, Any], data: "Dataset", threat: Any, bars: Any
) -> "Evaluation":
    """The evaluation at the end of `robustkit finetune`."""
    from robustkit.evaluation.request import EvaluationRequest
    from robustkit.evaluation.resolved import resolve

    return resolve(EvaluationRequest(
        models, dataset=data, attacks=options["attacks"], norm=threat.norm, eps=threat.eps_text,
        device=options["device"], seed=options["seed"], watch=bars,
    ))  # fmt: skip


def smoothing_of(options: dict[str, Any]) -> "Smoothing | None":
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


def remote_of(options: dict[str, Any]) -> "RemoteAccess | None":
    """How servers are queried; None where no option says so."""
    from robustkit.black_box import RemoteAccess

    names = ("max_queries", "rate", "parallel", "token_variable", "timeout")
    given = {name: options[name] for name in names if options[name] is not None}
    return RemoteAccess(**given) if given else None


def sample_count(samples: int | str) -> int | None:
    """The number that `--samples` gives; None for all images."""
    return None if samples == "all" else int(samples)


def loading_of(options: dict[str, Any]) -> dict[str, Any]:
    """How models given by name are loaded, apart from their weights."""
    names = ("num_classes", "mean", "std", "train", "retrain", "random_init")
    return {name: options[name] for name in names}


def remedies_of(options: dict[str, Any]) -> dict[str, Any]:
    """How models whose own gradients mislead are attacked."""
    from robustkit.classifier.surrogate_gradients import surrogate_gradients

    others = {name: options[name] for name in ("eot", "probabilities", "straight_through")}
    return {"bpda": surrogate_gradients(options["bpda"]), **others}
