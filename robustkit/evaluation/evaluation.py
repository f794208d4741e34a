"""Evaluate models: every attack in every threat model on every image, with evidence that survives being killed.

The headline is the mean over images of the worst case over attacks. It is an upper bound on robust accuracy, and only
that; a smoothed classifier has its certified accuracy beside it, a lower one.
"""

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from robustkit.classifier.smoothing import Smoothing
from robustkit.classifier.surrogate_gradients import StandIn
from robustkit.data import Dataset
from robustkit.evaluation.course import Course
from robustkit.evaluation.identity import compared, identity_of
from robustkit.evaluation.setting import Model, Numerics, Remedies, Setting, resolved
from robustkit.evidence.run import Run
from robustkit.evidence.store import Store
from robustkit.evidence.tables import summarised
from robustkit.host.environment import environment
from robustkit.host.progress import ProgressWatch, Silent
from robustkit.primitives.protocol import Attack

_AS_IT_IS = Numerics()
_NOBODY = Silent()


def evaluate(
    models: Model | Sequence[Model],
    *,
    dataset: str | Dataset | tuple[Tensor, Tensor] = "digits",
    attacks: str | Attack | Sequence[str | Attack] = "standard",
    norm: str | Sequence[str] = (),
    eps: float | str | Sequence[float | str] = (),
    samples: int | None = 1000,
    batch_size: int | Literal["auto"] = "auto",
    device: str = "auto",
    seed: int = 0,
    out: str | Path | None = None,
    weights: str | Path | Sequence[str | Path] | None = None,
    num_classes: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    numerics: Numerics = _AS_IT_IS,
    bpda: Mapping[str, StandIn | None] | None = None,
    eot: int | None = None,
    probabilities: bool = False,
    surrogates: Model | Sequence[Model] = (),
    smooth: float | Smoothing | None = None,
    watch: ProgressWatch = _NOBODY,
) -> Run:
    """Accuracy of models under attack: a `Run` whose `results` is a tidy data frame.

    Args:
        models: names, modules taking pixels in [0, 1], or classifiers with bounds of their own.
        dataset: a name, a `Dataset`, or images `[N, C, H, W]` in [0, 1] with labels `[N]`.
        attacks: specifications such as "pgd:steps=40", or the ensembles "standard" and "thorough". Each is run on all
            correctly classified images; the members of an ensemble only on what is left. Attack objects do as well.
        norm: "Linf", "L2", "L1", "L0"; by default those that are usual for the data set.
        eps: radii in units of pixels in [0, 1], "8/255" or "L2:0.5"; by default the usual ones.
        samples: how many images, in a fixed shuffled order; None takes all.
        batch_size: images in flight; on a CPU it does not change a bit of the result.
        device: "auto", "cpu", "cuda", ...
        seed: of all noise.
        out: run folder for evidence; the same call again goes on where it stopped. None keeps everything in memory.
        weights: checkpoints or published weights of models given by name, one per model, as in `load_model`.
        num_classes: of the checkpoint, likewise.
        mean: normalisation inside a model given by name.
        std: likewise.
        numerics: speed of the search.
        bpda: layers whose gradient the search replaces, as in `Classifier`; for modules and names.
        eot: draws of randomized models averaged per query, likewise.
        probabilities: the models return probabilities, likewise.
        surrogates: models that the attacks query in place of `models`, which only judge what that led to: transfer
            attacks, each called ATTACK@SURROGATE.
        smooth: sigma, or a `Smoothing`: what is attacked and certified is then the class that a module, or model given
            by name, says most often of noisy copies; a `Classifier` has its own.
        watch: is told of the progress.

    Raises:
        UserError: something cannot be done as asked; the sentence names the fix.
    """
    setting = resolved(
        models, dataset=dataset, attacks=attacks, norm=norm, eps=eps, samples=samples, batch_size=batch_size,
        device=device, seed=seed, weights=weights, num_classes=num_classes, mean=mean, std=std, numerics=numerics,
        remedies=Remedies(bpda or {}, eot, probabilities), watch=watch,
        surrogates=surrogates, smooth=smooth,
    )  # fmt: skip
    return carry_out(setting, None if out is None else Path(out), watch)


def carry_out(setting: Setting, out: Path | None, watch: ProgressWatch) -> Run:
    """Run what is not yet in the evidence of folder `out`, and return everything that is."""
    store = Store(out)
    try:
        identity = identity_of(setting)
        _check_same(store, identity, setting)
        courses = [Course(setting, classifier, store, watch) for classifier in setting.classifiers]
        if not all(course.complete for course in courses):
            _begin(store, setting, identity)
            for course in courses:
                course.run()
        if store.manifest().get("finished") is None:
            store.note(identity=identity, finished=_now())
        return summarised(store, out or Path())
    finally:
        store.close()


def _check_same(store: Store, identity: dict[str, Any], setting: Setting) -> None:
    """A folder without a single row may be used for anything; else only for what it was begun for, or more of it."""
    known = store.manifest().get("identity")
    if known is not None and not store.empty:
        compared(known, identity, setting)


def _begin(store: Store, setting: Setting, identity: dict[str, Any]) -> None:
    known, here = store.manifest(), environment(setting.device)
    if store.empty:
        store.note(created=_now(), command=_command(), seconds={}, warnings=[])
        known = {}
    before = known.get("environment", here)
    mixed = [
        f"Parts of this run were made with {key} {before[key]} and parts with {here[key]}."
        for key in ("robustkit", "torch", "device")
        if before[key] != here[key]
    ]
    store.note(
        robustkit=here["robustkit"], identity=identity, environment=here, finished=None,
        warnings=[*known.get("warnings", []), *mixed],
    )  # fmt: skip


def _command() -> str:
    return (
        " ".join(["robustkit", *sys.argv[1:]]) if Path(sys.argv[0]).stem == "robustkit" else "robustkit.evaluate(...)"
    )


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
