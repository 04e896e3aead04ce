"""rich's console, which raises BrokenPipeError when its reader is gone."""

from __future__ import annotations

import errno
import os

from rich import console


class Console(console.Console):
    """A console for commands: rich would exit with 1, which is reserved for failures."""

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError, which ends the command with 141 after it has cleaned up."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
