"""Images are streamed: memory does not grow with the number of samples."""

import hashlib

import pytest
import torch

from robustkit import evaluate
from robustkit.data import UsualThreat
from tests.small import Recorder, data, linear


class Slow:
    """A data set that notes what it was asked for; `finished` is told from outside."""

    name, split, class_names = "slow", "test", tuple("0123456789")
    threats = (UsualThreat("Linf", "0.1"),)

    def __init__(self, count: int) -> None:
        self.x, self.labels = data(count)
        self.asked: list[int] = []
        self.watch = Recorder()
        self.ahead = 0
        self.before = 0

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, ids):
        rows = torch.tensor(ids)
        self.asked.append(len(ids))
        if self.watch.stages and "clean" not in self.watch.stages[-1][0]:
            if len(self.watch.stages) != self.before:
                self.before, self.given, self.done = len(self.watch.stages), 0, self.watch.images
            self.given += len(ids)
            self.ahead = max(self.ahead, self.given - (self.watch.images - self.done))
        return self.x[rows], self.labels[rows]

    def fingerprint(self, ids) -> str:
        return hashlib.sha256(repr((list(ids), self.labels.tolist())).encode()).hexdigest()


@pytest.fixture
def slow() -> Slow:
    made = Slow(400)
    evaluate(linear(), dataset=made, attacks=["fgsm", "tiny"], eps=["0.05", "0.1"], batch_size=16, watch=made.watch)
    return made


def test_no_more_than_64_images_are_asked_for_at_once(slow):
    assert max(slow.asked) <= 64


def test_no_more_images_are_in_flight_than_slots_and_two_batches(slow):
    assert 0 < slow.ahead <= 16 + 2 * 64


def test_only_images_that_an_attack_needs_are_read():
    made = Slow(400)
    done = evaluate(linear(), dataset=made, attacks="fgsm", eps="0.1", samples=70)
    attacked = int(done.results[done.results.attack == "fgsm"].attacked.iloc[0])

    # One image to learn their shape, 64 for the checks before the run, 70 clean ones, and those that are attacked.
    assert sum(made.asked) <= 1 + 64 + 70 + attacked


def test_a_data_set_of_ones_own_is_evaluated_as_the_same_tensors_are():
    own = evaluate(linear(), dataset=Slow(80), attacks="fgsm", eps="0.1")
    tensors = evaluate(linear(), dataset=data(80), attacks="fgsm", eps="0.1")

    assert own.samples.equals(tensors.samples)


@pytest.mark.parametrize(("value", "word"), [(float("nan"), "NaN"), (1.5, "\\[0, 1\\]"), (-0.2, "\\[0, 1\\]")])
@pytest.mark.parametrize("number", [0, 75])
def test_a_data_set_of_ones_own_is_checked_as_it_is_read(number, value, word):
    from robustkit import UserError

    made = Slow(80)
    made.x[number, 0, 3, 3] = value
    with pytest.raises(UserError, match=word):
        evaluate(linear(), dataset=made, attacks="fgsm", eps="0.1")
