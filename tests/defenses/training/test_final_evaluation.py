"""The evaluation at the end of a fine-tuning: fp32, and inside ball and box, whatever the recipe."""

from typing import NamedTuple

import pandas as pd
import pytest
import torch
from torch import Tensor

from robustkit.classifier.oracle import Plain
from robustkit.cli import main
from robustkit.data import load_dataset
from robustkit.evaluation import evaluation
from robustkit.models import load_model

EPS = 0.2
TUNE = (
    "finetune", "-q", "-m", "net.py:net", "--eps", str(EPS), "-a", "pgd:steps=3", "-o", "tuned", "--set", "epochs=1",
    "--set", "attack=pgd:steps=1", "--set", "select=pgd:steps=1", "--set", "bf16=True",
)  # fmt: skip


class Judged(NamedTuple):
    model: str
    points: Tensor
    kinds: set[torch.dtype]  # of points, weights and logits
    casting: bool
    training: bool


def apart(points: Tensor, x: Tensor) -> Tensor:
    """`[N, M]` exact Linf distances."""
    return torch.cdist(points.flatten(1).double(), x.flatten(1).double(), p=torch.inf)


@pytest.fixture
def judged(tmp_path, monkeypatch) -> list[Judged]:
    """All points that the evaluation after a training in bf16 judges."""
    points_judged: list[Judged] = []
    own, carried_out = Plain.judge, evaluation.carry_out

    def judge(self, points):
        logits, model = own(self, points), self.reference.model
        kinds = {points.dtype, logits.dtype, *(weight.dtype for weight in model.parameters())}
        training = any(module.training for module in model.modules())
        points_judged.append(Judged(model.name, points.clone(), kinds, torch.is_autocast_enabled("cpu"), training))
        return logits

    def carry_out(*words):
        points_judged.clear()
        return carried_out(*words)

    monkeypatch.setattr(Plain, "judge", judge)
    monkeypatch.setattr(evaluation, "carry_out", carry_out)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text("from tests.defenses.nets import net\n")
    with pytest.raises(SystemExit) as end:
        main(list(TUNE))
    assert not end.value.code
    return points_judged


def test_verdicts_after_a_training_are_fp32_inside_the_ball_and_true(judged):
    data = load_dataset("digits")
    x, y = data.batch(range(len(data)))

    assert {each.model for each in judged} == {"net.net", "net.net-tuned"}
    assert all(each.kinds == {torch.float32} and not each.casting and not each.training for each in judged)

    points = torch.cat([each.points for each in judged if each.model == "net.net-tuned"])
    # Negatives of images are not verdicts: a sanity check uses them as neighbours in a batch.
    points = points[apart(points, 1 - x).amin(1) > 0]
    nearest, owner = apart(points, x).min(1)
    assert points.min() >= 0
    assert points.max() <= 1
    assert nearest.max() <= EPS
    assert nearest.max() > 0.99 * EPS

    # The model in the written file predicts at the judged points what the table reports.
    tuned = load_model("net.py:net", weights="tuned/model.safetensors", dataset=data).eval()
    with torch.no_grad():
        wrong = tuned(points).argmax(1) != y[owner]
    right = len(data) - len(set(owner[wrong].tolist()))
    table = pd.read_csv("tuned/results.csv").set_index(["model", "attack"])
    assert table.loc[("net.net-tuned", "pgd:steps=3"), "accuracy"].item() == pytest.approx(right / len(data))
