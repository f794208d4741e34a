"""AutoAttack on small models: few classes, further norms and radii, and the command line's list."""

import pytest
import torch
from torch import nn

from robustkit.evaluation.plan import plan
from robustkit.evaluation.threats import Threat
from robustkit.primitives import ensembles
from tests.small import broken, csv, data, evaluated, linear


class FirstClasses(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.model, self.classes = linear(), classes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x)[:, : self.classes]


def of_classes(classes: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = data(200)
    own = (y < classes).nonzero().flatten()[:count]
    return x[own], y[own]


def shorter(monkeypatch):
    """The published members with small budgets."""

    def short(text: str) -> str:
        return text.replace("steps=100", "steps=5").replace("queries=5000", "queries=20")

    for name in ("autoattack", "autoattack-plus", "autoattack-rand"):
        monkeypatch.setitem(ensembles.ENSEMBLES, name, tuple(map(short, ensembles.members(name, "Linf"))))
    in_l1 = tuple(map(short, ensembles.members("autoattack", "L1")))
    monkeypatch.setitem(ensembles.IN_NORM, ("autoattack", "L1"), in_l1)


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("autoattack", 3),
        ("autoattack-rand", 2),
        *(("autoattack-plus", classes) for classes in (2, 3)),
        pytest.param("autoattack-plus", 4, marks=pytest.mark.slow),
    ],
)
def test_few_classes_are_attacked_with_the_targets_that_there_are(name, classes, monkeypatch):
    shorter(monkeypatch)
    run = evaluated(FirstClasses(classes), None, dataset=of_classes(classes, 10), attacks=name, eps=["0.1", "0.3"])
    rows = run.results[(run.results.role == "member") & (run.results.eps_text == "0.1")]
    trials = {f"{name}/apgd-t": classes - 1, f"{name}/fab-t": classes - 1}
    per_trial = {f"{name}/apgd-t": 5, f"{name}/fab-t": 10}

    assert "undecided" not in run.results
    assert len(broken(run, name, "0.3")) > 0
    for row in rows.itertuples():
        if row.attack in trials:
            assert row.backwards <= row.attacked * trials[row.attack] * per_trial[row.attack]


def test_two_classes_with_the_whole_budget():
    run = evaluated(FirstClasses(2), None, dataset=of_classes(2, 4), attacks="autoattack", eps="0.2")
    (row,) = run.results[run.results.role == "ensemble"].itertuples()

    assert row.n == 4


def test_a_norm_whose_budget_differs_extends_a_run(tmp_path, monkeypatch):
    shorter(monkeypatch)
    request = {"dataset": data(3), "attacks": "autoattack", "checks": "none"}
    evaluated(linear(), tmp_path, eps=["L1:1.0"], **request)
    evaluated(linear(), tmp_path, eps=["L1:1.0", "Linf:0.1"], **request)
    grown = evaluated(linear(), tmp_path, eps=["L1:0.5", "L1:1.0", "Linf:0.1"], **request)
    at_once = evaluated(linear(), tmp_path / "other", eps=["L1:0.5", "L1:1.0", "Linf:0.1"], **request)

    assert csv(grown, tmp_path)[1] == csv(at_once, tmp_path / "other")[1]


def test_each_norm_gets_its_own_budget():
    planned = plan(["autoattack"], [Threat("L1", "2", 2.0, "L1"), Threat("Linf", "0.1", 0.1, "Linf")])
    found = {(each.threat.norm, each.name): each.attack for each in planned.attacks}

    assert found["L1", "autoattack/apgd-ce"].restarts == 5
    assert found["Linf", "autoattack/apgd-ce"].restarts == 1
    assert found["L1", "autoattack/apgd-t"].targets == 5
    assert found["Linf", "autoattack/apgd-t"].targets == 9
    assert found["L1", "autoattack/apgd-t"].ball.eps == 2


def test_the_manifest_describes_every_norm_whichever_is_run():
    one, other = (plan(["autoattack"], [Threat(norm, "1", 1.0, norm)]).described() for norm in ("Linf", "L1"))

    assert one == other
    assert one[0]["L1"] == {"restarts": 5}
    assert "L2" not in one[0]
