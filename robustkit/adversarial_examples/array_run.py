"""Attack arrays and write adversarial examples as exact floats, verified as they are read again."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from robustkit.classifier.classifier import Classifier
from robustkit.engine.jobs import reached
from robustkit.errors import UserError

from .making import AttackChoice, Outcome, attempt, opinion


class ArrayResult(NamedTuple):
    """What became of all images."""

    outcomes: list[Outcome]
    predictions: Tensor  # [N] int64 at x_adv
    distances: Tensor  # [N] float64
    queries: list[int]
    y: Tensor  # [N] int64


def attack_arrays(
    classifier: Classifier, x: Tensor, labels: Sequence[int | None], choice: AttackChoice, path: Path,
    sources: Sequence[str] = (),
) -> ArrayResult:  # fmt: skip
    """Attack `x` and write one safetensors file with x_adv, x, y, prediction, success, distance and queries.

    `prediction` and `success` are the unmodified model's answers to the tensor as it is read from the file.

    Args:
        classifier: the model.
        x: `[N, *S]` images in [0, 1].
        labels: one for each image; None takes the model's prediction.
        choice: the attack.
        path: the file.
        sources: names of the images, stored as JSON in the file's metadata.

    Raises:
        UserError: the file cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file, save_file

    numbers = range(len(x))
    tried = attempt(classifier, x, labels, numbers, choice)
    distances = torch.tensor(tried.distances, dtype=torch.float64, device="cpu")
    said = opinion(classifier, tried.x_adv, numbers, choice.seed)
    # A randomized model answers here with other draws than those that ended the attack.
    outcomes: list[Outcome] = [
        "robust" if outcome == "broken" and not reached(answer, label, choice.target) else outcome
        for outcome, answer, label in zip(tried.outcomes, said.labels.tolist(), tried.y.tolist(), strict=True)
    ]
    success = torch.tensor([outcome == "broken" for outcome in outcomes], device="cpu")
    content = {
        "x_adv": tried.x_adv.contiguous(), "x": x.contiguous(), "y": tried.y, "prediction": said.labels,
        "success": success, "distance": distances, "queries": torch.tensor(tried.queries, device="cpu"),
    }  # fmt: skip
    metadata = {"attack": choice.method, "norm": choice.norm_label, "eps": choice.eps, "target": str(choice.target)}
    metadata |= {"pictures": json.dumps(list(sources))} if sources else {}
    try:
        save_file(content, path, metadata)
    except (OSError, SafetensorError) as error:  # the second on a full disk
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path} cannot be written ({reason}); give another --out.") from error
    _verify(classifier, load_file(path), choice)
    return ArrayResult(outcomes, said.labels, distances, tried.queries, tried.y)


def _verify(classifier: Classifier, stored: dict[str, Tensor], choice: AttackChoice) -> None:
    """Ask the model about the tensor in the file: its answers are those that the file says."""
    said = opinion(classifier, stored["x_adv"], range(len(stored["x_adv"])), choice.seed)
    claims = zip(said.labels.tolist(), stored["y"].tolist(), stored["success"].tolist(), strict=True)
    wrong = [row for row, (answer, label, success) in enumerate(claims)
             if success and not reached(answer, label, choice.target)]  # fmt: skip
    if wrong:
        raise UserError(
            f"The model does not repeat its answer to image {wrong[0]} of the file, so nothing was written; is it "
            "randomized without a seed?"
        )
