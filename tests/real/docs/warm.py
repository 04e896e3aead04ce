"""A process that has imported what the pages use, and forks for each of their Pythons and quick commands.

To start a Python and to import the library is most of what a page costs. `warm` makes a folder with a program
`segmented`, to be put on the PATH: it hands its words, folder, environment and streams to the warm process, which runs
the command in a fork of itself and returns the exit code. Commands that go on or start processes are run as installed,
but for sales, whose workers are forks too.
"""

import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

from tests.support.paths import ROOT
from tests.support.warm import warm_workers

SALE: Final = "sell"
QUICK: Final = ("pool", "orders", "dedup", "lock", "advise", SALE)
PAGE: Final = "the Python of a page"
PROGRAM: Final = """\
#!{python} -IS
import json, os, signal, socket, sys
words = sys.argv[1:]
if not words or words[0] not in {quick}:
    os.execv({installed!r}, ["segmented", *words])
wire = socket.socket(socket.AF_UNIX)
wire.connect({place!r})
told = json.dumps([words, os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(wire, [len(told).to_bytes(4, "big")], [0, 1, 2])
wire.sendall(told)
pid = int.from_bytes(wire.recv(4), "big")
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: os.kill(pid, number))
os._exit(int.from_bytes(wire.recv(4), "big"))
"""


@contextlib.contextmanager
def warm() -> Iterator[Path]:
    """Start the process, and yield the folder of its program; both end with the block."""
    with tempfile.TemporaryDirectory(prefix="docs-") as name:
        folder, place = Path(name), f"{name}/wire"
        program = folder / "segmented"
        installed = str(Path(sys.executable).parent / "segmented")
        program.write_text(
            PROGRAM.format(python=sys.executable, quick=(*QUICK, PAGE), installed=installed, place=place)
        )
        program.chmod(0o755)
        words = [sys.executable, "-m", "tests.real.docs.warm", place]
        with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            try:
                yield folder
            finally:
                process.terminate()


def serve(place: str) -> None:
    """Fork for each that asks, until the process is ended."""
    from segmented.cli import dedup, lock, orders, pool  # noqa: F401, PLC0415  # to be warm
    from segmented.cli.main import run  # noqa: PLC0415  # as above

    with contextlib.redirect_stderr(io.StringIO()):
        run(["pool", "show", "x", "--url", "redis://127.0.0.1:1"])
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(place)
        door.listen()
        print("ready", flush=True)  # noqa: T201  # the test reads it
        while True:
            wire, _ = door.accept()
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG) != (0, 0):
                    pass
            if os.fork() == 0:
                door.close()
                _attend(wire)
            wire.close()


def _attend(wire: socket.socket) -> None:
    """Run what one program asks for in a child of this process, and tell the program its exit code."""
    head, streams, _, _ = socket.recv_fds(wire, 4, 3)
    told = b""
    while len(told) < int.from_bytes(head, "big"):
        told += wire.recv(65_536)
    words, folder, environment = json.loads(told)
    child = os.fork()
    if child == 0:
        wire.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        tempfile.tempdir = None
        sys.argv = ["segmented", *words]
        sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]  # it is a stream of text
        sys.exit(_page() if words == [PAGE] else _command())
    wire.sendall(child.to_bytes(4, "big"))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(BrokenPipeError):
        wire.sendall((128 - code if code < 0 else code).to_bytes(4, "big"))
    os._exit(0)


def _command() -> int:
    from segmented.__main__ import main  # noqa: PLC0415  # warm by now

    with warm_workers() if sys.argv[1] == SALE else contextlib.nullcontext():
        main()
    return 0


def _page() -> int:
    from tests.real.docs.page_process import main  # noqa: PLC0415  # as above

    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "invalid escape sequence")
    sys.modules["__main__"] = ModuleType("__main__")
    sys.path.insert(0, "")
    main()
    return 0


if __name__ == "__main__":
    serve(sys.argv[1])
