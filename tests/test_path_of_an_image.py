"""How many files of the package one image passes: so many must a reader open to follow it."""

import sys
from pathlib import Path
from types import FrameType

from robustkit.attacks import PGD

import robustkit
from robustkit.engine.scheduler import Scheduler
from robustkit.evaluation.runner import ModelRun
from tests.problems import problem
from tests.small import evaluated

ROOT = Path(robustkit.__file__).parents[1]
FOLDERS = tuple(f"{ROOT / folder}/" for folder in ("robustkit", "attacks", "defenses", "reports"))


def files_of_call(monkeypatch, owner: type, method: str, number: int) -> list[str]:
    """The files whose functions run in a call of a method, in an evaluation of one image with PGD."""
    files, calls, original = set[str](), [], getattr(owner, method)

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(FOLDERS):
            files.add(str(Path(frame.f_code.co_filename).relative_to(ROOT)))

    def watched(*given: object) -> object:
        calls.append(method)
        before = sys.getprofile()
        sys.setprofile(note if len(calls) == number else before)
        try:
            return original(*given)
        finally:
            sys.setprofile(before)

    monkeypatch.setattr(owner, method, watched)
    made = problem("linear", 1, 8, 8)
    evaluated(made.model, None, dataset=(made.x, made.y), attacks=PGD(0.001, steps=5), samples=1)
    assert len(calls) >= number
    return sorted(files)


def test_an_image_passes_few_files_from_the_data_set_to_its_row(monkeypatch):
    files = files_of_call(monkeypatch, ModelRun, "attack", 1)

    assert len(files) <= 46, "\n".join(files)


def test_a_batch_passes_few_files_in_one_query_and_one_step(monkeypatch):
    # By the third step the image is in its slot, and it does not leave before the fifth query.
    files = files_of_call(monkeypatch, Scheduler, "step", 3)

    assert len(files) <= 16, "\n".join(files)
