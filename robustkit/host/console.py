"""The console of tables and progress bars."""

import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from robustkit.host.text import printable_lines

from .streams import drop_output


class SafeConsole(Console):
    """A console that prints no control character but its own, and drops its output once nobody reads it."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Segments with printable text; rich's own codes are no text."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else printable_lines(segment.text)
            yield segment if text == segment.text else Segment(text, segment.style)

    def on_broken_pipe(self) -> None:
        """Go on: the command's files and its status are worth more than its table."""
        drop_output(sys.stderr if self.stderr else sys.stdout)
