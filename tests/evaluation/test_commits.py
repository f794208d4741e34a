"""A finished image reaches the disk within about a second, also where a step is slow or one image runs at a time."""

from itertools import pairwise
from types import SimpleNamespace

import pytest
from torch import Tensor, nn

from robustkit import evaluate
from robustkit.engine import patience
from robustkit.evaluation import attacking, runner
from robustkit.evidence.rows import AttackRecord, CleanRecord
from robustkit.evidence.store import Store
from tests.networks import Changed
from tests.small import data, linear


class Clock:
    """A clock that a model moves on by the seconds of a forward; notes when rows are written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self.now, self.seconds = 0.0, seconds
        self.writes: list[tuple[float, int]] = []
        write = Store.write

        def noted(store: Store, rows) -> None:
            rows = list(rows)
            count = sum(isinstance(row, (AttackRecord, CleanRecord)) for row in rows)
            if count:
                self.writes.append((self.now, count))
            write(store, rows)

        monkeypatch.setattr(Store, "write", noted)
        for module in (patience, runner, attacking):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))

    def model(self) -> nn.Module:
        def forward(x: Tensor) -> Tensor:
            self.now += self.seconds
            return x

        return Changed(linear(), before=forward)

    def gaps(self) -> list[float]:
        times = [time for time, _ in self.writes]
        return [after - before for before, after in pairwise(times)]


# An image takes nine forwards and one for its verdict, and a forward may begin just before a second is over. Before the
# first gradient a batch size is proven, in ten forwards.
@pytest.mark.parametrize(("seconds", "batch", "count"), [(0.02, 1, 50), (0.02, 8, 150), (0.02, 64, 150)])
def test_finished_images_are_written_within_about_a_second(seconds, batch, count, monkeypatch):
    clock = Clock(monkeypatch, seconds)
    evaluate(clock.model(), dataset=data(count), attacks="pgd:steps=8", eps="0.01", batch_size=batch)

    assert max(clock.gaps()) <= 1 + 22 * seconds


def test_a_slow_model_is_judged_for_a_twentieth_of_the_time(monkeypatch):
    clock = Clock(monkeypatch, 2.0)
    evaluate(clock.model(), dataset=data(30), attacks="pgd:steps=8", eps="0.01", batch_size=1)

    assert max(clock.gaps()) <= (20 + 12) * 2.0


def test_clean_predictions_of_a_slow_model_are_written_sixteen_at_a_time(monkeypatch):
    clock = Clock(monkeypatch, 1.0)
    evaluate(clock.model(), dataset=data(70), attacks="fgsm", eps="0.1")

    assert [count for _, count in clock.writes[:5]] == [16, 16, 16, 16, 6]
