"""Progress bars with the robust accuracy so far, on standard error; one line per stage if that is not a terminal."""

from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from typing_extensions import Self

from .console import SafeConsole


class Bars:
    """A `ProgressWatch` for terminals. A context manager, because bars must end before tables are printed."""

    def __init__(self, quiet: bool) -> None:
        self.console = SafeConsole(stderr=True, quiet=quiet, soft_wrap=True)
        self._bars = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"), TimeRemainingColumn(), console=self.console,
            disable=quiet or not self.console.is_terminal,
        )  # fmt: skip
        self._stage: TaskID | None = None
        self._training: TaskID | None = None

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def stage(self, text: str, total: int, done: int) -> None:
        """Add a bar; earlier bars stay on the screen."""
        self._stage = self._bars.add_task(text, total=total, completed=done, note="")
        if not self.console.is_terminal:
            self.console.print(f"{text}: {total - done} images to do", markup=False, highlight=False)

    def advance(self, images: int, robust: float) -> None:
        """Advance the bar of the current stage."""
        if self._stage is not None:
            self._bars.update(self._stage, advance=images, note=f"{100 * robust:5.1f} % left")

    def say(self, text: str) -> None:
        """Print a message above the bars."""
        self.console.print(text, markup=False, highlight=False)

    def training(self, text: str, share: float) -> None:
        """Set the bar of the training to this share."""
        if self._training is None:
            self._training = self._bars.add_task("training", total=1.0, note="")
        self._bars.update(self._training, completed=share, note=text)
        if share >= 1:
            self._bars.remove_task(self._training)
            self._training = None
