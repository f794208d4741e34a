"""Progress on standard error: a bar for the running stage and one for the whole job, below the stages that are done.

If that is not a terminal, one line per stage.
"""

from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column
from typing_extensions import Self

from .console import SafeConsole
from .time_left import TimeLeft, clock_text

_NARROW = 72  # columns of a terminal below which bars are short
_TOTAL = "all"


class Bars:
    """A `ProgressWatch` for terminals. A context manager, because bars must end before tables are printed.

    Args:
        quiet: print nothing at all.
        console: where to; None is standard error.
    """

    def __init__(self, quiet: bool, console: Console | None = None) -> None:
        self.console = console or SafeConsole(stderr=True, quiet=quiet, soft_wrap=True)
        width = 8 if self.console.width < _NARROW else 24
        name = Column(no_wrap=True, overflow="ellipsis", ratio=1)
        columns = [Column(no_wrap=True, justify="right") for _ in range(3)]
        self._bars = Progress(
            TextColumn("{task.description}", markup=False, table_column=name), BarColumn(bar_width=width),
            *(TextColumn(f"{{task.fields[{field}]}}", markup=False, table_column=column)
              for field, column in zip(("count", "note", "left"), columns, strict=True)),
            console=self.console, disable=quiet or not self.console.is_terminal, expand=True,
        )  # fmt: skip
        self._stage: TaskID | None = None
        self._name = self._note = ""
        self._training: TaskID | None = None
        self._total: TaskID | None = None
        self._time: TimeLeft | None = None

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_stage()
        if self._total is not None:
            self._bars.remove_task(self._total)
        if not self._bars.disable:  # rich before 14.3 prints an empty line
            self._bars.stop()

    def expect(self, stages: Mapping[str, float]) -> None:
        """Show a bar for all of these stages together, each with its expected work, and the time that is left."""
        self._time = TimeLeft(stages)
        if self._total is None:
            self._total = self._bars.add_task(_TOTAL, total=1.0, count="", note="", left="")

    def stage(self, text: str, total: int, done: int) -> None:
        """Show the bar of a stage, in the place of the one before."""
        self._close_stage()
        self._name, self._note = text, ""
        self._stage = self._bars.add_task(text, total=total, completed=done, count=f"{done}/{total}", note="", left="")
        if self._time is not None:
            self._time.begin(text, total, done)
            self._show_total()
        if not self.console.is_terminal:
            left = total - done
            images = "1 image" if left == 1 else f"{left} images"
            self.console.print(f"{text}: {images} to do", markup=False, highlight=False)

    def advance(self, images: int, robust: float) -> None:
        """Advance the bar of the current stage."""
        if self._stage is None:
            return
        task = next(each for each in self._bars.tasks if each.id == self._stage)
        total, self._note = task.total or 0, f"{100 * robust:5.1f} % left"
        done = round(task.completed + images)
        self._bars.update(self._stage, advance=images, count=f"{done}/{round(total)}", note=self._note)
        if self._time is not None and total:
            self._time.advance(images / total)
            self._show_total()

    def say(self, text: str) -> None:
        """Print a message above the bars."""
        self.console.print(text, markup=False, highlight=False)

    def training(self, text: str, share: float) -> None:
        """Set the bar of the training to this share."""
        if self._training is None:
            self._training = self._bars.add_task("training", total=1.0, count="", note="", left="")
        self._bars.update(self._training, completed=share, note=text)
        if share >= 1:
            self._bars.remove_task(self._training)
            self._training = None

    def _show_total(self) -> None:
        assert self._time is not None
        assert self._total is not None
        left = f"about {clock_text(self._time.seconds)}"
        self._bars.update(self._total, completed=self._time.done, count=f"{100 * self._time.done:.0f} %", left=left)

    def _close_stage(self) -> None:
        """Leave a line of the stage that has ended, so that the running one is always the last."""
        if self._stage is None:
            return
        task = next(each for each in self._bars.tasks if each.id == self._stage)
        self._bars.remove_task(self._stage)
        self._stage = None
        if self.console.is_terminal and self._note:
            line = f"{self._name}: {round(task.completed)}/{round(task.total or 0)}, {self._note.strip()}"
            self.console.print(line, markup=False, highlight=False)
