"""An own attack whose results depend on the batch: the run says so, and of no other attack."""

import pytest
from torch import nn

from robustkit import evaluate
from tests.small import cnn, data

OWN = """
from dataclasses import KW_ONLY, dataclass, replace

import torch
from robustkit.attacks import PGD


@dataclass(frozen=True)
class Honest(PGD):
    pass


@dataclass(frozen=True)
class MeanOfTheBatch(PGD):
    def step(self, state, seen):
        return super().step(state, replace(seen, grad=seen.grad.mean(0, keepdim=True).expand_as(seen.grad)))


@dataclass(frozen=True)
class GlobalNoise(PGD):
    def step(self, state, seen):
        return super().step(state, replace(seen, grad=seen.grad + torch.randn_like(seen.grad)))


@dataclass(frozen=True)
class NeighboursLogits(PGD):
    def objective(self, logits, trials):
        return super().objective(logits, trials) + (logits * logits.roll(1, 0)).sum(1)


MOMENTUM = []


@dataclass(frozen=True)
class StateBetweenBatches(PGD):
    def step(self, state, seen):
        MOMENTUM.append(seen.grad.mean(0, keepdim=True))
        return super().step(state, replace(seen, grad=seen.grad + 100 * sum(MOMENTUM)))
"""
SAID = "alone than among other images"


@pytest.fixture
def own(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(OWN)
    return file


def warnings(attack, **options):
    run = evaluate(cnn(), dataset=data(12), eps="0.03", attacks=attack, **options)
    return [text for text in run.manifest["warnings"] if SAID in text]


@pytest.mark.parametrize("name", ["MeanOfTheBatch", "NeighboursLogits", "GlobalNoise", "StateBetweenBatches"])
def test_a_run_says_that_an_own_attack_depends_on_the_batch(own, name):
    (said,) = warnings(f"{own}:{name}:steps=3,restarts=2")

    assert said.startswith(f"{name} finds another point for image ")
    assert "check_attack" in said


@pytest.mark.parametrize("options", [{}, {"eps": "0.3"}, {"norm": "L2"}], ids=str)
def test_an_own_attack_that_keeps_images_apart_is_not_suspected(own, options, monkeypatch):
    asked = {"dataset": data(12), "eps": "0.03", "attacks": f"{own}:Honest:steps=3,restarts=2", **options}
    run = evaluate(cnn(), **asked)
    monkeypatch.setattr("robustkit.evaluation.attacking.answers_alike", lambda *given: False)

    assert not [text for text in run.manifest["warnings"] if SAID in text]
    # The image that was attacked alone has the row, and the passes, that it has without it.
    assert run.samples.equals(evaluate(cnn(), **asked).samples)


def test_an_objective_that_reads_other_images_is_not_blamed_on_how_the_machine_rounds(own):
    # Of a network of which nothing is known, so that its first queries are this attack's.
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    run = evaluate(network, dataset=data(12), eps="0.03", attacks=f"{own}:NeighboursLogits:steps=3")

    assert "rounds" not in " ".join(run.manifest["warnings"])


@pytest.mark.slow
def test_a_worker_says_it_too(own):
    assert len(warnings(f"{own}:MeanOfTheBatch:steps=2", workers=1)) == 1
