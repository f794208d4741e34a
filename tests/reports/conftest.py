"""Synthetic runs: samples are drawn first and the results are counted from them, so that the two always agree."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

from robustkit.evidence.picture import Picture
from robustkit.evidence.run import SAMPLE_COLUMNS, Run
from robustkit.evidence.sample_rows import SampleRows
from robustkit.statistics.intervals import proportion

Rows = list[dict[str, Any]]
CLASSES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
MEMBERS = ("apgd-ce", "apgd-t", "square")
PASSES = {"fgsm": (1, 1), "pgd": (41, 40), "apgd-ce": (101, 100), "apgd-t": (901, 900), "square": (5000, 0)}
POWER = {"fgsm": 0.7, "pgd": 0.97, "apgd-ce": 0.98, "apgd-t": 1.0, "square": 0.9}
WARNINGS = (
    "For 3 images pgd ended with a smaller loss than fgsm at Linf 0.1: more steps may lower the accuracy.",
    "square used all its 5,000 queries on 212 images: a larger budget may break more.",
)


@dataclass(frozen=True)
class Plan:
    """What a synthetic run should look like; `hardness` scales the radius that a model withstands."""

    n: int = 90
    models: tuple[str, ...] = ("resnet18", "resnet18-adversarial")
    threats: tuple[tuple[str, float, str], ...] = tuple(
        [("Linf", eps, text) for eps, text in ((0.05, "0.05"), (0.1, "0.1"), (0.2, "0.2"))]
        + [("L2", eps, text) for eps, text in ((0.25, "1/4"), (0.5, "1/2"), (1.0, "1"))]
    )
    hardness: float = 1.0
    clean: float = 0.96
    class_names: tuple[str, ...] = CLASSES
    finished: str | None = "2025-01-02T03:14:15Z"
    decided: int | None = None  # how many images the worst case knows; None: all
    pictures: bool = True
    folder: str = "runs/first"
    dataset: str = "digits"
    seed: int = 0


def _row(
    plan: Plan, model: str, threat: tuple[str, float, str], attack: str, role: str, **counts: int
) -> dict[str, Any]:
    n, correct, attacked, broken = (counts[name] for name in ("n", "correct", "attacked", "broken"))
    share = proportion(correct, n)
    return {
        "model": model, "dataset": plan.dataset, "split": "test", "norm": threat[0], "eps": threat[1],
        "eps_text": threat[2], "attack": attack, "role": role, "n": n, "correct": correct, "accuracy": share.value,
        "ci_low": share.low, "ci_high": share.high, "ci_method": share.method, "attacked": attacked, "broken": broken,
        "success_rate": broken / attacked if attacked else float("nan"),
        "forwards": counts["forwards"], "backwards": counts["backwards"],
    }  # fmt: skip


class Maker:
    """Draws the rows of one run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rng = np.random.default_rng(plan.seed)
        digits = load_digits()
        self.chosen = np.sort(self.rng.permutation(len(digits.target))[: plan.n])
        self.x = (digits.images[self.chosen] / 16).astype(np.float32)[:, None]
        self.y = digits.target[self.chosen]
        self.results: Rows = []
        self.samples: Rows = []
        self.pictures: list[Picture] = []

    def model(self, number: int, name: str) -> None:
        n = self.plan.n
        right = self.rng.random(n) < self.plan.clean
        other = (self.y + self.rng.integers(1, 10, n)) % 10
        pred = np.where(right, self.y, other)
        correct = int(right.sum())
        clean = {"n": n, "correct": correct, "attacked": 0, "broken": 0, "forwards": n, "backwards": 0}
        self.results.append(_row(self.plan, name, ("-", 0.0, "0"), "clean", "clean", **clean))
        # How far each image is from the boundary, in units of the middle radius of its norm; eights are brittle.
        radius = self.plan.hardness * self.rng.gamma(2.0, 0.35 + 0.45 * number, n) * np.where(self.y == 8, 0.6, 1.0)
        for threat in self.plan.threats:
            self.threat(name, threat, right, pred, radius * {"L2": 0.5}.get(threat[0], 0.1))

    def threat(self, name: str, threat: tuple[str, float, str], right: Any, pred: Any, radius: Any) -> None:
        robust, decided = right.copy(), self.plan.decided or self.plan.n
        spent = np.zeros(2, dtype=int)
        for attack in ("fgsm", "pgd"):
            broken = right & (radius * self.rng.uniform(1, 1.6, len(right)) < threat[1] * POWER[attack])
            spent += self.record(name, threat, attack, "attack", right, broken, pred)
            robust &= ~broken
        left = right.copy()
        stages = []
        for attack in MEMBERS:
            broken = left & (radius * self.rng.uniform(1, 1.15, len(right)) < threat[1] * POWER[attack])
            stages.append((attack, left.copy(), broken))
            left &= ~broken
        before = spent.copy()
        for attack, asked, broken in stages:
            spent += self.record(name, threat, attack, "member", asked, broken, pred)
        self.total(name, threat, "standard", "ensemble", right, left, spent - before)
        known = np.arange(self.plan.n) < decided
        self.total(name, threat, "worst-case", "worst-case", right & known, robust & left & known, spent, n=decided)

    def record(self, name: str, threat: Any, attack: str, role: str, asked: Any, broken: Any, pred: Any) -> Any:
        forwards, backwards = (np.array([cost]) * asked.sum() for cost in PASSES[attack])
        for i in np.flatnonzero(asked | (pred != self.y)):
            fell, wrong = bool(broken[i]), bool(pred[i] != self.y[i])
            to = (self.y[i] + 3) % 10
            size = threat[1] if fell else float("nan")
            self.samples.append({
                "model": name, "norm": threat[0], "eps": threat[1], "eps_text": threat[2], "attack": attack,
                "sample": int(self.chosen[i]), "label": int(self.y[i]), "clean_pred": int(pred[i]),
                "verdict": "clean-wrong" if wrong else "broken" if fell else "robust",
                "adv_pred": int(to if fell else pred[i]), "queries_to_break": 3 if fell else None,
                "restart": 0 if fell else None, "target": None, "linf": size, "l2": size, "l1": size, "l0": size,
                "forwards": 0 if wrong else PASSES[attack][0], "backwards": 0 if wrong else PASSES[attack][1],
            })  # fmt: skip
            if not wrong and attack == "pgd" and i < 8:
                self.picture(name, threat, attack, i, int(to if fell else pred[i]))
        counts = {"forwards": int(forwards[0]), "backwards": int(backwards[0])}
        attacked, fallen = int(asked.sum()), int(broken.sum())
        counts |= {"n": self.plan.n, "correct": attacked - fallen, "attacked": attacked, "broken": fallen}
        self.results.append(_row(self.plan, name, threat, attack, role, **counts))
        return np.array([counts["forwards"], counts["backwards"]])

    def total(
        self, name: str, threat: Any, attack: str, role: str, right: Any, kept: Any, spent: Any, n: int = 0
    ) -> None:
        attacked, correct = int(right.sum()), int(kept.sum())
        counts = {"n": n or self.plan.n, "correct": correct, "attacked": attacked, "broken": attacked - correct}
        counts |= {"forwards": int(spent[0]), "backwards": int(spent[1])}
        self.results.append(_row(self.plan, name, threat, attack, role, **counts))

    def picture(self, name: str, threat: tuple[str, float, str], attack: str, i: int, to: int) -> None:
        x = self.x[i]
        delta = self.rng.uniform(-1, 1, x.shape).astype(np.float32)
        delta *= threat[1] / (np.abs(delta).max() if threat[0] == "Linf" else np.linalg.norm(delta))
        x_adv = np.clip(x + delta, 0, 1).astype(np.float32)
        label = int(self.y[i])
        self.pictures.append(
            Picture(name, threat[0], threat[2], attack, int(self.chosen[i]), label, label, to, x, x_adv)
        )


def synthetic(plan: Plan = Plan()) -> Run:
    maker = Maker(plan)
    for number, name in enumerate(plan.models):
        maker.model(number, name)
    kept = maker.pictures if plan.pictures else []
    identity = {
        "dataset": plan.dataset, "split": "test", "n": plan.n, "seed": plan.seed,
        "data_sha256": "9f2c" * 16,
        "models": {name: {"weights_sha256": "ab01" * 16} for name in plan.models},
        "attacks": [
            {"name": "fgsm", "loss": "margin"},
            {"name": "pgd", "steps": 40, "step_size": "eps/10", "restarts": 1},
            {"name": "standard", "members": list(MEMBERS)},
        ],
        "threats": [[norm, text] for norm, _, text in plan.threats],
    }  # fmt: skip
    manifest = {
        "robustkit": "0.1.0", "identity": identity,
        "environment": {"python": "3.11", "torch": "2.6.0", "device": "cpu"},
        "created": "2025-01-02T03:04:05Z", "finished": plan.finished,
        "command": "robustkit evaluate --model resnet18 --data digits",
        "seconds": {"clean": 0.81, "fgsm": 1.27, "pgd": 32.8, "standard": 481.25}, "warnings": list(WARNINGS),
    }  # fmt: skip
    samples = pd.DataFrame(maker.samples, columns=SAMPLE_COLUMNS)
    for column in ("queries_to_break", "restart", "target"):
        samples[column] = samples[column].astype("Int64")
    return Run(
        Path(plan.folder), manifest, pd.DataFrame(maker.results), SampleRows.of_frame(samples), kept, plan.class_names
    )


@pytest.fixture(scope="session")
def make_run() -> Callable[..., Run]:
    return lambda **plan: synthetic(Plan(**plan))


@pytest.fixture(scope="session")
def run() -> Run:
    return synthetic()
