"""Images are read as they are needed: memory does not grow with the number of samples."""

import hashlib

import pytest
import torch

from robustkit import UserError, evaluate
from robustkit.data import UsualThreat
from tests.small import Recorder, data, linear


class Stream:
    """A data set that records how many images each call reads, and the most that were read and not yet finished."""

    name, split, class_names = "stream", "test", tuple("0123456789")
    threats = (UsualThreat("Linf", "0.1"),)

    def __init__(self, count: int) -> None:
        self.x, self.labels = data(count)
        self.sizes: list[int] = []
        self.watch = Recorder()
        self.stages = self.read = self.finished_before = self.most_in_flight = 0

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, ids):
        rows = torch.tensor(ids)
        self.sizes.append(len(ids))
        if self.watch.stages and "clean" not in self.watch.stages[-1][0]:
            if len(self.watch.stages) != self.stages:
                self.stages, self.read, self.finished_before = len(self.watch.stages), 0, self.watch.images
            self.read += len(ids)
            self.most_in_flight = max(self.most_in_flight, self.read - (self.watch.images - self.finished_before))
        return self.x[rows], self.labels[rows]

    def fingerprint(self, ids) -> str:
        return hashlib.sha256(repr((list(ids), self.labels.tolist())).encode()).hexdigest()


def test_images_are_read_64_at_a_time_and_no_more_than_the_slots_and_two_batches_are_in_flight():
    stream = Stream(300)
    settings = {"attacks": ["fgsm", "tiny"], "eps": ["0.05", "0.1"], "batch_size": 16}
    evaluate(linear(), dataset=stream, watch=stream.watch, **settings)

    assert max(stream.sizes) <= 64
    assert 0 < stream.most_in_flight <= 16 + 2 * 64


def test_only_images_that_an_attack_needs_are_read():
    stream = Stream(400)
    results = evaluate(linear(), dataset=stream, attacks="fgsm", eps="0.1", samples=70, checks="none").results
    attacked = int(results[results.attack == "fgsm"].attacked.iloc[0])

    # One image to learn their shape, 32 by which the model is recognised later, 64 for the checks before the run, 70
    # clean ones, and those that are attacked.
    assert sum(stream.sizes) <= 1 + 32 + 64 + 70 + attacked


def test_a_users_data_set_gives_the_results_of_its_tensors():
    own, tensors = (
        evaluate(linear(), dataset=dataset, attacks="fgsm", eps="0.1") for dataset in (Stream(80), data(80))
    )

    assert own.samples.equals(tensors.samples)


@pytest.mark.parametrize(("value", "word"), [(float("nan"), "NaN"), (1.5, "\\[0, 1\\]"), (-0.2, "\\[0, 1\\]")])
@pytest.mark.parametrize("number", [0, 75])
def test_a_users_data_set_is_checked_as_it_is_read(number, value, word):
    stream = Stream(80)
    stream.x[number, 0, 3, 3] = value
    with pytest.raises(UserError, match=word):
        evaluate(linear(), dataset=stream, attacks="fgsm", eps="0.1")
