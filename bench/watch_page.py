"""The page of `segmented watch --web` in a process of its own, while something is sold or recorded."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator

ENDS_SECONDS: Final = 10.0


@contextmanager
def watch_page(url: str, *skus: str, every: float = 1.0) -> Iterator[str]:
    """Serve the page of these pools, or of all, on a free port; give its address. Raises InvalidInput if it fails."""
    command = [sys.executable, "-m", "segmented", "watch", *skus, "--web", "--port", "0", "--every", str(every)]
    environment = {**os.environ, "SEGMENTED_URL": url}  # no password on a command line
    run = subprocess.Popen(  # noqa: S603  # our own interpreter and modules
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        lines = iter(run.stdout or ())
        found = re.search(r"http://\S+", first := next(lines, ""))
        if found is None:
            message = f"segmented watch: {first.strip()}"
            raise InvalidInput(message)
        threading.Thread(target=list, args=(lines,), daemon=True).start()  # so that it never waits for a reader
        yield found[0]
    finally:
        run.terminate()
        try:
            run.wait(ENDS_SECONDS)
        except subprocess.TimeoutExpired:
            run.kill()
            run.wait()
