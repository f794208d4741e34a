"""Trainings whose epochs are judged in a blink."""

from collections.abc import Iterator

import pytest

from tests.defenses.nets import judge_quickly


@pytest.fixture
def judged_quickly(monkeypatch) -> None:
    """For tests that are not about the judge."""
    judge_quickly(monkeypatch)


@pytest.fixture(scope="module")
def all_judged_quickly() -> Iterator[None]:
    """The same for a whole file."""
    with pytest.MonkeyPatch.context() as patch:
        judge_quickly(patch)
        yield
