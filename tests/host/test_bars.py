"""The time that is left comes from this session's work, and the running stage is on the screen."""

import io
from itertools import count

import pytest
from rich.console import Console

from robustkit.host.bars import Bars
from robustkit.host.time_left import TimeLeft, clock_text

STAGES = {"clean": 1.0, "a": 10.0, "b": 30.0}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_even_speed_gives_the_exact_time():
    clock = Clock()
    time = TimeLeft(STAGES, clock)
    for stage, weight in STAGES.items():
        time.begin(stage, 5, 0)
        for _ in range(5):
            clock.now += 2 * weight / 5
            time.advance(1 / 5)

            assert time.seconds == pytest.approx(82 - clock.now)


def test_after_a_resume_only_the_work_of_this_session_counts():
    clock = Clock()
    time = TimeLeft(STAGES, clock)
    time.begin("clean", 10, 10)
    time.begin("a", 10, 10)
    time.begin("b", 10, 5)

    assert time.done == pytest.approx(26 / 41)
    assert time.seconds is None
    clock.now += 6
    time.advance(0.1)
    assert time.seconds == pytest.approx(4 * 6)


def test_stages_that_were_left_out_count_as_finished():
    clock = Clock()
    time = TimeLeft(STAGES, clock)
    time.begin("b", 4, 0)
    clock.now += 3
    time.advance(1 / 4)

    assert time.seconds == pytest.approx(9)
    assert clock_text(3609) == "1:00:09"


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_the_running_stage_and_the_total_fit_below_the_finished_ones(width):
    console = Console(file=io.StringIO(), width=width, height=8, force_terminal=True)
    names = [f"a-network-with-a-long-name Linf 0.{number} attack" for number in range(12)]
    with Bars(quiet=False, console=console) as bars:
        bars.expect(dict.fromkeys(names, 1.0))
        for name, _ in zip(names, count(), strict=False):
            bars.stage(name, 4, 0)
            bars.advance(2, 0.5)
        bars._bars.refresh()
        screen = Console(file=io.StringIO(), width=width, record=True)
        screen.print(bars._bars.get_renderable())
        lines = screen.export_text().splitlines()

    assert len(lines) == 2
    assert all(len(line.rstrip()) <= width for line in lines)
    assert "2/4" in lines[1]
    assert "about" in lines[0]


def test_a_log_says_how_many_images_are_to_do():
    console = Console(file=io.StringIO(), width=80)
    with Bars(quiet=False, console=console) as bars:
        for done in (0, 3, 4):
            bars.stage("stage", 4, done)

    assert console.file.getvalue().splitlines() == [
        "stage: 4 images to do", "stage: 1 image to do", "stage: 0 images to do",
    ]  # fmt: skip


def test_each_finished_stage_leaves_its_accuracy():
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    with Bars(quiet=False, console=console) as bars:
        for name in ("first", "second"):
            bars.stage(name, 4, 1)
            bars.advance(3, 0.25)

    text = console.file.getvalue()
    assert "first: 4/4, 25.0 % left" in text
    assert "second: 4/4, 25.0 % left" in text
