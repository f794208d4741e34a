"""Trainings whose epochs are judged in a blink."""

from collections.abc import Iterator

import pytest

from tests.defenses.nets import judge_quickly


@pytest.fixture(scope="module")
def all_judged_quickly() -> Iterator[None]:
    """`judged_quickly` for a whole file."""
    with pytest.MonkeyPatch.context() as patch:
        judge_quickly(patch)
        yield
