"""rich's console, which raises BrokenPipeError when its reader is gone, and shows no text that controls a terminal."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from rich import console
from rich.segment import Segment

from segmented.files import STDOUT
from segmented.models.ids import visible

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class Console(console.Console):
    """A console for commands: rich would exit with 1, which is reserved for failures."""

    def render(
        self, renderable: console.RenderableType, options: console.ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render as rich does; control characters in a text, which may be from a file or a key, become escapes."""
        for one in super().render(renderable, options):
            yield one if one.control else Segment(visible(one.text), one.style)

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError, which ends the command with 141 after it has cleaned up."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def console_beside(*written: Path | None) -> Console:
    """Create a console on standard output, or on standard error if one of the files to write is standard output."""
    return Console(stderr=STDOUT in written)
