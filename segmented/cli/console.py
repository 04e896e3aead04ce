"""rich's console, with the end of a reader told as the exception that it is."""

from __future__ import annotations

import errno
import os

from rich import console


class Console(console.Console):
    """rich would end the program with 1, which is for a promise that was broken."""

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError, which ends the command with 141 after it has tidied up."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
