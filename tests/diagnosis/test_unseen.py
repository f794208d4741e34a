"""What a diagnosis could not look at, and awkward models."""

import json

import pytest
import torch
from torch import nn

from robustkit.classifier.classifier import Classifier
from robustkit.diagnosis import diagnose
from tests.diagnosis.nets import EPS, base, defended, images


class Round(nn.Module):
    def forward(self, x):
        return torch.round(x * 8) / 8


def test_a_layer_that_never_runs_is_listed_with_a_reason():
    class Skips(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.spare = base(), nn.Linear(2, 2)

        def forward(self, x):
            return self.body(x)

    x, y = images(8)
    found = diagnose(Skips(), x, y, eps=EPS, prove=False)

    assert [each.layer for each in found.unseen] == ["spare"]
    assert "spare" in str(found)


@pytest.mark.filterwarnings("ignore:`torch.jit.script`", "ignore::DeprecationWarning")
def test_a_scripted_layer_that_masks_is_not_called_clear():
    scripted = torch.jit.script(Round())
    x, y = images(8)
    found = diagnose(nn.Sequential(scripted, base()), x, y, eps=EPS, prove=False)

    assert found.unseen[0].layer == "0"
    assert "scripted" in found.unseen[0].reason
    assert found.verdict == "inconclusive"


def test_a_compiled_layer_that_masks_is_not_called_clear():
    hidden = Round()
    hidden.compile(backend="eager")
    x, y = images(8)
    with torch.compiler.set_stance("force_eager"):
        found = diagnose(nn.Sequential(hidden, base()), x, y, eps=EPS, prove=False)

    assert found.unseen[0].layer == "0"
    assert found.verdict == "inconclusive"


@pytest.mark.parametrize("wrap", [nn.DataParallel, lambda model: torch.compile(model, backend="eager")])
@pytest.mark.parametrize("classify", [lambda model: model, Classifier])
def test_a_wrapped_model_is_looked_at_as_it_was_before(wrap, classify):
    x, y = images(8)
    found = diagnose(classify(wrap(defended("quantised"))), x, y, eps=EPS, prove=False)

    assert [row.layer for row in found.culprits] == ["quantise"]
    assert found.unseen == ()


def test_only_the_chosen_layers_are_looked_at():
    x, y = images(8)
    found = diagnose(defended("quantised"), x, y, eps=EPS, layers=["network.conv*"], prove=False)

    assert [row.layer for row in found.rows] == ["network.conv1", "network.conv2"]
    assert found.verdict == "inconclusive"


def test_each_call_of_a_shared_layer_has_its_row():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = base()
            self.act = nn.ReLU(inplace=True)

        def forward(self, x):
            return self.body(self.act(2 * self.act(x)))

    x, y = images(8)
    found = diagnose(Twice(), x, y, eps=EPS, prove=False)

    assert [(row.layer, row.call) for row in found.rows[:2]] == [("act", 0), ("act", 1)]
    assert found.rows[1].name == "act #2"


def test_a_layer_whose_backward_gives_nan_is_found():
    class Root(nn.Module):
        def forward(self, x):
            return x + 0 * (x - x.detach()).sqrt()

    x, y = images(8)
    found = diagnose(nn.Sequential(Root(), base()), x, y, eps=EPS)

    assert [(row.layer, row.verdict) for row in found.culprits] == [("0", "non-finite")]
    assert found.proof.before is None
    assert found.proof.after < 0.5


def test_a_layer_that_behaves_when_watched_is_found():
    class TwoFaced(nn.Module):
        def forward(self, x):
            return 0 * x + 0.5 if torch.is_grad_enabled() else x

    x, y = images(8)
    found = diagnose(nn.Sequential(TwoFaced(), base()), x, y, eps=EPS, prove=False)

    assert [(row.layer, row.verdict) for row in found.culprits] == [("0", "two-faced")]
    assert [remedy.kind for remedy in found.prescription] == ["gradient-free"]


def test_two_culprits_are_both_found_and_treated_together():
    x, y = images(24)
    model = nn.Sequential(Round(), defended("softmax"))
    found = diagnose(model, x, y, eps=EPS)

    assert [(row.layer, row.verdict) for row in found.culprits] == [("0", "step"), ("1.softmax", "probabilities")]
    assert {remedy.kind for remedy in found.prescription} == {"bpda", "probabilities"}
    assert found.proof.after < 0.2


def test_json_has_no_value_that_other_parsers_refuse_and_the_frame_has_a_row_per_call():
    x, y = images(8)
    found = diagnose(defended("detached"), x, y, eps=EPS)
    data = json.loads(found.to_json(), parse_constant=pytest.fail)

    assert data["verdict"] == "masked"
    assert [row["layer"] for row in data["rows"]] == [row.layer for row in found.rows] == list(found.to_frame().layer)
    assert data["proof"]["before"] is None
    assert data["prescription"][0]["option"] == "--bpda relu1.detach"


def test_markdown_survives_strange_names():
    x, y = images(8)
    model = nn.Sequential(base())
    model.add_module("a|b", nn.Identity())
    lines = diagnose(model, x, y, eps=EPS, prove=False).to_markdown().splitlines()

    assert len({line.replace("\\|", "").count("|") for line in lines if line.startswith("|")}) == 1


def test_a_long_table_leaves_out_faithful_calls_and_says_so():
    class Round8(Round):
        pass

    x, y = images(8)
    chain = nn.Sequential(*(nn.Identity() for _ in range(30)), Round8(), *(nn.Identity() for _ in range(30)), base())
    text = str(diagnose(chain, x, y, eps=EPS, prove=False)).splitlines()
    table = text[: text.index("")]

    assert len(table) < 30
    assert sum(line.strip() == "..." for line in table) == 2
    assert any("Round8" in line and "step" in line for line in table)
    assert "more calls, none of them a culprit" in table[-1]
