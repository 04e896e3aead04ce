"""The proxy in its own process: `python -m bench.proxy`.

Its first line of stdin is JSON: `upstream`, `rtt_ms`, `path`, `cores`. It answers with a line on stdout once it
listens at the path. When the parent ends for any reason, stdin ends, and the proxy exits too.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading

from bench.proxy.relay import Upstream, fine_loop, serve


def main(line: str) -> int:
    """Run the proxy of a request line until stdin ends; return the exit code."""
    told = json.loads(line)
    if told["cores"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, told["cores"])
    with asyncio.Runner(loop_factory=fine_loop) as runner:
        runner.run(_serve(Upstream(**told["upstream"]), told["rtt_ms"], told["path"]))
    return 0


async def _serve(upstream: Upstream, rtt_ms: float, path: str) -> None:
    gone = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(gone.set)

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    await serve(upstream, rtt_ms / 2_000, path, _announce, gone.wait())


def _announce() -> None:
    sys.stdout.write("listening\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.stdin.readline()))
