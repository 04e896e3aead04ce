"""Starts the proxy's process and ends it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

from bench.children import close_process
from bench.granularity.cell import ROUND_TRIP_MAX
from bench.proxy.addresses import through, upstream_of
from segmented.errors import InvalidInput, SegmentedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@contextmanager
def delayed(url: str, rtt_ms: float, *, cores: Sequence[int] = ()) -> Iterator[str]:
    """Yield a URL of the same Redis with `rtt_ms` more milliseconds per round trip.

    A separate process relays the bytes: its CPU time is in the `others` of a run's cores. Raises InvalidInput for an
    unsupported URL or round trip. `cores`: where it may run; empty: any.
    """
    upstream = upstream_of(url)
    if not 0 <= rtt_ms <= ROUND_TRIP_MAX:  # also refuses NaN
        message = f"a round trip of {rtt_ms:g} ms must be between 0 and {ROUND_TRIP_MAX:,g} ms"
        raise InvalidInput(message)
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "bench.proxy"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,  # a terminal's Ctrl-C reaches only this process, which ends the child
        )
        try:
            said = _told(child, json.dumps({"upstream": asdict(upstream), "rtt_ms": rtt_ms, "cores": list(cores)}))
            if not said:
                errors.seek(0)
                last_words = [line.strip() for line in errors if line.strip()][-1:]
                message = f"the network delay could not be started: {' '.join(last_words)}"
                raise SegmentedError(message)
            yield through(url, json.loads(said)["port"])
        finally:
            close_process(child)


def _told(child: subprocess.Popen[str], line: str) -> str:
    if child.stdin is None or child.stdout is None:
        return ""
    with suppress(BrokenPipeError):  # it has ended, and its stderr says why
        child.stdin.write(line + "\n")
        child.stdin.flush()
    return child.stdout.readline()
