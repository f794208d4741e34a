import warnings

import pytest
import torch
from robustkit.attacks import FGSM, PGD
from torch import Tensor, nn

import robustkit
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.randomized import Randomized
from robustkit.errors import UserError
from tests.networks import Changed, Noisy, Private
from tests.problems import problem

SOURCES = ("torch.Generator", "numpy's Generator", "random.Random", "os.urandom", "the clock", "a count of its calls")


def is_randomized(model: nn.Module, x: Tensor) -> bool:
    with Classifier(model).session(x) as session:
        return isinstance(session.oracle, Randomized)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("spread", [1.0, 1e-4])
def test_a_model_whose_answers_no_seed_repeats_is_refused(source, spread):
    made = problem("mlp", 1, 8, 8, count=8)
    with pytest.raises(UserError, match=r"changes from call to call.*without generator=") as refused:
        robustkit.attack(Private(made.model, source, spread), made.x, made.y, FGSM(0.01))

    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("spread", [1.0, 1e-3, 1e-5, 1e-7])
def test_noise_of_any_size_is_recognised(spread):
    made = problem("mlp", 1, 8, 8, count=8)

    assert is_randomized(Changed(made.model, lambda logits: logits + spread * torch.rand_like(logits)), made.x)


def test_noise_in_one_call_of_ten_is_recognised():
    made = problem("mlp", 1, 8, 8, count=8)

    assert is_randomized(Changed(made.model, lambda logits: logits * (-1) ** int(torch.rand(()) < 0.1)), made.x)


@pytest.mark.parametrize("change", [lambda logits: logits + 0 * torch.rand(()), lambda logits: logits.clone()])
def test_a_model_whose_answers_are_always_the_same_is_not_randomized(change):
    made = problem("mlp", 1, 8, 8, count=8)

    assert not is_randomized(Changed(made.model, change), made.x)


def test_a_model_that_seeds_its_generator_in_forward_is_not_randomized():
    made = problem("mlp", 1, 8, 8, count=8)

    def change(logits: Tensor) -> Tensor:
        torch.manual_seed(0)
        return logits + 0.01 * torch.rand(logits.shape[1])

    assert not is_randomized(Changed(made.model, change), made.x)


class Ageing(nn.Module):
    """Answers otherwise after its first `calls` calls."""

    def __init__(self, model: nn.Module, calls: int) -> None:
        super().__init__()
        self.model, self._left = model, calls

    def forward(self, x: Tensor) -> Tensor:
        self._left -= 1
        return self.model(x) if self._left >= 0 else -self.model(x)


def test_a_model_that_changes_during_an_attack_is_a_warning():
    made = problem("mlp", 1, 8, 8, count=8)
    with pytest.warns(UserWarning, match="other answers to the same images now than at the start"):
        robustkit.attack(Ageing(made.model, 34), made.x, made.y, PGD(0.001, steps=20))


def test_a_model_that_changes_during_a_run_is_a_warning_in_its_manifest():
    made = problem("mlp", 1, 8, 8, count=8)
    model, attack = Ageing(made.model, 34), PGD(0.001, steps=20)
    run = robustkit.evaluate(model, dataset=(made.x, made.y), attacks=attack)

    assert "other answers to the same images now than at the start" in run.manifest["warnings"][-1]


def test_a_model_that_stays_the_same_has_no_warning():
    made = problem("cnn", 1, 8, 8, count=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        robustkit.attack(made.model, made.x, made.y, FGSM(0.01))
    with pytest.warns(UserWarning, match="is randomized") as said:
        robustkit.attack(Noisy(made.model), made.x, made.y, FGSM(0.01))

    assert len(said) == 1
