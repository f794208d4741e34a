"""CRAttack (Pan et al., AAAI 2025) as its authors run it, from a checkout of fzjcdt/constraint-relaxation-attack.

Three targets of 150 steps that leave the ball in turns and come back, and five rounds on images that came near. Their
code counts forwards and backwards of each image. It keeps raw logits' margins of 0.05 and 1 as limits, so its verdicts
depend on the scale of the logits.
"""

import importlib
import importlib.util
import sys
import time
from pathlib import Path
from types import ModuleType

import torch
from default import Verdicts
from subjects import Subject


def verdicts(subject: Subject, eps: float, seed: int, folder: Path) -> Verdicts:
    """What CRAttack leaves standing of correctly classified images; judged by one more forward each."""
    since = time.perf_counter()
    attack = _authors(folder).CRAttack(subject.model, eps=eps, seed=seed)
    # Their code writes into the logits, which only works on answers that nobody else holds.
    points, forwards, backwards = attack(subject.x, subject.y)
    within = subject.x + (points - subject.x).clamp(-eps, eps)
    with torch.no_grad():
        robust = (subject.model(within.clamp(0, 1)).argmax(1) == subject.y).tolist()
    passes = (forwards + backwards).int().tolist()
    seconds = time.perf_counter() - since
    return Verdicts(
        {row for row, stands in enumerate(robust) if stands}, dict(enumerate(passes)), seconds, warned=False
    )


def _authors(folder: Path) -> ModuleType:
    """Their module. Its package is called attacks, as one of ours is, so it is imported under another name."""
    sys.path.append(str(folder))  # for their utils
    init = folder / "attacks" / "__init__.py"
    spec = importlib.util.spec_from_file_location(
        "crattack_authors", init, submodule_search_locations=[str(folder / "attacks")]
    )
    assert spec is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["crattack_authors"] = package
    return importlib.import_module("crattack_authors.attacks.cr_attack")
