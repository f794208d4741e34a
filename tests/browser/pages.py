"""The pages of all commands, rendered from small evidence."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import torch
from robustkit.reports.ablation.page import page as ablation_page
from robustkit.reports.comparison.page import page as comparison_page
from robustkit.reports.diagnosis.page import DiagnosisContext
from robustkit.reports.diagnosis.page import page as diagnosis_page
from robustkit.reports.evaluation.html import page as evaluation_page
from robustkit.reports.trace.page import TraceContext
from robustkit.reports.trace.page import page as trace_page
from torch import Tensor, nn

from robustkit.comparison.compare import Comparison
from robustkit.diagnosis import diagnose
from robustkit.tracing import album, trace
from tests.problems import problem
from tests.reports.ablation.test_page import ABOUT, CELLS, RUNS
from tests.reports.conftest import Plan, synthetic
from tests.reports.pages import HOSTILE
from tests.small import cnn, data

LONG = "wide_resnet_with_a_very_long_name_that_somebody_chose-2026-11-22-final-version-2"

THREATS = (("Linf", 0.1, "0.1"), ("Linf", 0.2, "0.2"), ("L2", 0.5, "1/2"))


class Rounds(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.round(x * 4) / 4


def evaluation() -> str:
    return evaluation_page([synthetic(Plan(n=40, models=("resnet18", LONG), threats=THREATS[1:]))])


def hostile_evaluation() -> str:
    names = tuple(f"{number}{HOSTILE}" for number in range(10))
    return evaluation_page(
        [synthetic(Plan(n=40, models=(HOSTILE, f"=1+1{HOSTILE}"), threats=THREATS[1:], class_names=names))]
    )


def finetuning() -> str:
    run = synthetic(Plan(n=40, models=("resnet18", "resnet18-tuned"), threats=THREATS[:1], pictures=False))
    history = pd.DataFrame(
        [(1, 0.5, 0.2, 0.1, False), (2, 0.8, 0.5, 0.4, True), (3, 0.9, 0.4, 0.3, False)],
        columns=["epoch", "val_clean", "val_ce", "val_worst", "best"],
    )
    with TemporaryDirectory() as folder:
        history.to_csv(Path(folder) / "history.csv", index=False)
        return evaluation_page([replace(run, folder=Path(folder))])


def comparison() -> str:
    """Three models, of which the first two do not differ significantly."""
    ranking = [("Linf", 0.1, "0.1", name, 100, k, k / 100, k / 100 - 0.08, k / 100 + 0.08, group)
               for name, k, group in (("resnet18", 60, "a"), (HOSTILE, 55, "a"), (LONG, 20, "b"))]  # fmt: skip
    alike = "no significant difference"
    pairs = [
        ("Linf", 0.1, "0.1", "resnet18", HOSTILE, 100, 50, 10, 5, 35, 0.05, -0.02, 0.12, 0.3, 0.3, alike),
        ("Linf", 0.1, "0.1", "resnet18", LONG, 100, 20, 40, 0, 40, 0.4, 0.29, 0.5, 1e-9, 3e-9, "first"),
        ("Linf", 0.1, "0.1", HOSTILE, LONG, 100, 20, 35, 0, 45, 0.35, 0.25, 0.45, 1e-8, 2e-8, "first"),
    ]
    return comparison_page(Comparison(
        pd.DataFrame(ranking, columns=["norm", "eps", "eps_text", "model", "n", "correct", "accuracy", "ci_low",
                                       "ci_high", "group"]),
        pd.DataFrame(pairs, columns=["norm", "eps", "eps_text", "first", "second", "n", "both", "first_only",
                                     "second_only", "neither", "difference", "ci_low", "ci_high", "p", "p_holm",
                                     "verdict"]),
        ("The runs used different attacks.",),
    ))  # fmt: skip


def diagnosis() -> str:
    return diagnosis_page(diagnose(nn.Sequential(Rounds(), cnn()), *data(8), eps=0.2), DiagnosisContext("digits test"))


def tracing() -> str:
    chosen = problem("cnn", 1, 8, 8, count=12)
    traced = trace(chosen.model, chosen.x, chosen.y, attack="fgsm", eps="0.03")
    return trace_page(
        traced, album(chosen.model, traced, images=2, channels=1), TraceContext("digits test", (LONG,) * 4)
    )


def ablation() -> str:
    names = [HOSTILE if name == "nesterov=false" else name for name in CELLS.cell]
    return ablation_page(CELLS.assign(cell=names), RUNS, ABOUT)


PAGES: dict[str, Callable[[], str]] = {
    "evaluate": cache(evaluation),
    "evaluate, hostile names": cache(hostile_evaluation),
    "finetune": cache(finetuning),
    "compare": cache(comparison),
    "diagnose": cache(diagnosis),
    "trace": cache(tracing),
    "ablate": cache(ablation),
}
