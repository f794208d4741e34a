"""Runs on models with masked gradients say so; runs on honest models do not."""

import io

import pytest
import torch
from rich.console import Console
from robustkit.reports import print_table
from torch import nn

from robustkit import evaluate, load_dataset, load_run, masked_defenses
from robustkit.primitives import ensembles
from tests.diagnosis.nets import base as trained
from tests.small import Recorder, cnn, data, evaluated, linear

pytestmark = pytest.mark.usefixtures("_no_straight_through")


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    members = ("apgd-ce:steps=10", "apgd-t:steps=10,targets=2", "square:queries=100")
    monkeypatch.setitem(ensembles.ENSEMBLES, "small", members)


class Rounded(nn.Module):
    """A network behind a quantisation, which has a derivative of zero almost everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.model = linear()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(torch.round(x * 4) / 4)


@pytest.fixture(scope="module")
def base():
    return trained()


def warnings_of(run):
    return " ".join(run.manifest["warnings"])


def images(count):
    return load_dataset("digits").batch(range(count))


@pytest.mark.parametrize("name", ["quantised", "zeroed"])
def test_an_ensemble_on_masked_gradients_names_diagnose(name, base):
    run = evaluated(masked_defenses.build(name, base), None, dataset=images(30), attacks="small", eps="0.1")

    assert "attacks without gradients broke" in warnings_of(run)
    assert "exactly zero" in warnings_of(run)
    assert len(run.manifest["warnings"]) >= 2
    assert all("robustkit diagnose" in sentence for sentence in run.manifest["warnings"])
    assert run.results.note[run.results.eps_text == "0.1"].str.startswith("gradients look masked").all()


def test_attacks_named_one_by_one_say_it_too():
    run = evaluated(Rounded(), None, dataset=data(30), attacks=["square:queries=60", "pgd:steps=10"], eps="0.2")

    assert "attacks without gradients broke" in warnings_of(run)


def test_a_lone_attack_whose_gradients_are_zero_says_so():
    run = evaluated(Rounded(), None, dataset=data(20), attacks="pgd:steps=10", eps="0.1")

    assert "exactly zero" in warnings_of(run)


def test_a_run_that_was_interrupted_still_says_so(tmp_path):
    request = {"dataset": data(20), "attacks": "pgd:steps=10", "eps": "0.1"}
    with pytest.raises(KeyboardInterrupt):
        evaluated(Rounded(), tmp_path, **request, watch=Recorder(stop_after=30))
    assert "exactly zero" in warnings_of(load_run(tmp_path))

    whole = evaluated(Rounded(), tmp_path, **request)
    assert warnings_of(whole).count("had gradients that are exactly zero") == 1


def test_a_loss_that_saturates_is_told(base):
    model = masked_defenses.build("temperature", base)
    ce, usual = (
        evaluated(model, None, dataset=images(30), attacks=f"pgd:steps=10,loss={loss}", eps="0.05")
        for loss in ("ce", "log-odds")
    )

    assert "exactly zero" in warnings_of(ce)
    assert not usual.manifest["warnings"]


def test_the_remedy_silences_the_warnings(base):
    model = masked_defenses.build("quantised", base)
    bpda = {masked_defenses.masking_layer("quantised", model): None}
    run = evaluated(model, None, dataset=images(30), attacks="small", eps="0.1", bpda=bpda)

    assert not run.manifest["warnings"]


@pytest.mark.parametrize("attacks", ["small", ["noise:queries=5", "square:queries=30", "fgsm", "pgd:steps=5"]])
def test_an_honest_model_is_not_suspected(attacks, base):
    radii = ["Linf:0.1", "L2:0.5", "L1:2"]
    run = evaluated([base, cnn()], None, dataset=images(10), attacks=attacks, eps=radii, names=list("ab"))

    assert not run.manifest["warnings"]
    assert "note" not in run.results


def test_a_transfer_attack_that_fails_is_no_sign():
    attacks = ["pgd:steps=10", "square:queries=60"]
    run = evaluated(linear(), None, dataset=data(30), attacks=attacks, eps="0.1", surrogates=cnn())

    assert not run.manifest["warnings"]


def test_the_terminal_and_the_page_show_it(tmp_path):
    request = {"dataset": data(20), "attacks": "small", "eps": "0.2"}
    run = evaluate(Rounded(), **request, out=tmp_path)
    console = Console(file=io.StringIO(), width=300)
    print_table(run, console)

    for text in (console.file.getvalue(), (tmp_path / "report.html").read_text(encoding="utf-8")):
        assert "robustkit diagnose" in text
    assert "gradients look masked" in (tmp_path / "results.csv").read_text(encoding="utf-8")
