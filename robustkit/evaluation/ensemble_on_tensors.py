"""`robustkit.attack`: tensors under one attack, which the engine runs, or under an ensemble, which is an evaluation."""

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ParamSpec

import pandas as pd
import torch
from torch import Tensor, nn

from robustkit.checks import zero_gradients
from robustkit.checks.register import warnings_of
from robustkit.classifier.classifier import Classifier, as_classifier
from robustkit.data.tensors import Array, tensor_of
from robustkit.engine import attack_tensors
from robustkit.engine.attack_tensors import Attacked, required_radius
from robustkit.errors import UserError
from robustkit.evaluation.evaluation import carry_out
from robustkit.evaluation.request import EvaluationRequest
from robustkit.evaluation.resolved import resolve
from robustkit.evidence.run import Run
from robustkit.host.arguments import bound_arguments
from robustkit.host.warned import warn
from robustkit.primitives import ensembles
from robustkit.primitives.mask import Mask

P = ParamSpec("P")


def _also_with_ensembles(single: Callable[P, Attacked]) -> Callable[P, Attacked]:
    signature = inspect.signature(single)

    @wraps(single)
    def attack(*args: P.args, **kwargs: P.kwargs) -> Attacked:
        method = kwargs.get("method", args[3] if len(args) > 3 else None)
        if isinstance(method, str) and ensembles.is_ensemble(method):
            return _attack_with_ensemble(**bound_arguments("attack", signature, args, kwargs))
        return single(*args, **kwargs)

    return attack


attack = _also_with_ensembles(attack_tensors.attack)


def _attack_with_ensemble(
    model: nn.Module | Classifier,
    x: Array,
    y: Array,
    method: str,
    *,
    eps: float | str | None = None,
    norm: str = "Linf",
    mask: Mask | Array | str | Path | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
    batch_size: int = 64,
    seed: int = 0,
    progress: bool | None = False,
    **others: Any,
) -> Attacked:
    refused = [name for name, value in others.items() if value is not None]
    if refused:
        raise UserError(f"{method} is an ensemble, which has no {refused[0]}; leave it out, or give a single attack.")
    eps = required_radius(method, eps)
    if not isinstance(eps, (str, float, int)):
        raise UserError(f"{method} attacks tensors at one radius, not {eps!r}; robustkit.evaluate takes several.")
    images, labels = tensor_of(x, "The images").detach().cpu(), tensor_of(y, "The labels").cpu()
    if images.dim() != 4 or labels.dim() != 1:
        raise UserError(
            f"{method} attacks images [N, C, H, W] with labels [N], not {list(images.shape)} with {list(labels.shape)}."
        )
    classifier = as_classifier(model, bounds)
    if tuple(classifier.bounds) != (0, 1) or images.dtype != torch.float32:
        raise UserError(
            f"{method} is an ensemble, which attacks float32 images in [0, 1], not {str(images.dtype)[6:]} in "
            f"{list(classifier.bounds)}; scale them, and give a normalisation as Classifier(model, mean=..., std=...)."
        )
    with TemporaryDirectory() as folder:
        request = EvaluationRequest(
            classifier, dataset=(images, labels), attacks=method, norm=norm, eps=eps, mask=mask, samples=None,
            batch_size=batch_size, device=str(classifier.device), seed=seed, keep_adversarial=True, progress=progress,
        )  # fmt: skip
        with request.watched() as watched:
            run = carry_out(resolve(watched), Path(folder), watched.watch)
        result = _attacked(run, images, labels, ensembles.name_of(method))
    for text in dict.fromkeys([*run.manifest["warnings"], *warnings_of(run.checks, run.manifest["warnings"])]):
        warn(text)
    return result


def _attacked(run: Run, images: Tensor, y: Tensor, name: str) -> Attacked:
    rows = run.samples[run.samples["attack"] == name].set_index("sample").sort_index()
    broken, found = _tensor(rows["verdict"] == "broken"), run.adversarial()
    x_adv, prediction = images.clone(), _tensor(rows["clean_pred"])
    if len(found):
        x_adv = x_adv.to(torch.promote_types(x_adv.dtype, found.x_adv.dtype))  # the point that was judged
        x_adv[found.samples], prediction[found.samples] = found.x_adv, found.predictions
    right = (prediction == y).double()
    draws = torch.full_like(right, torch.nan) if run.manifest.get("randomized") else right
    clean = run.results[run.results["role"] == "clean"].iloc[0]
    blind = torch.zeros_like(broken)
    for check in run.checks:
        if check.name == zero_gradients.RULE.name:
            blind[list(check.images)] = True
    return Attacked(
        x_adv=x_adv, success=broken, clean_correct=_tensor(rows["verdict"] != "clean-wrong"), prediction=prediction,
        queries=_tensor(rows["queries_to_break"]),
        forwards=_tensor(rows["forwards"]) + int(clean["forwards"]) // len(rows), backwards=_tensor(rows["backwards"]),
        right_draws=draws, parameters=x_adv, zero_gradients=blind & ~broken,
    )  # fmt: skip


def _tensor(column: "pd.Series[Any]") -> Tensor:
    kind = torch.bool if column.dtype == bool else torch.int64
    return torch.tensor(column.fillna(0).tolist(), dtype=kind, device="cpu")  # empty where an image was not attacked
