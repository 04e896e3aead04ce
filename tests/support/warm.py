"""Python programs of tests, each a fork of a process that has imported what they use.

A worker of Celery imports for a second or two, which is most of what a test of one costs, and tests start hundreds.
`start_warm` puts `WarmPopen` in the place of `subprocess.Popen`: what `program_of` knows starts as a fork, and is a
child of this process with the session, the streams, the folder and the environment that it asked for. All other
programs, also Python's, start as ever; so do those that patch modules before they import (gevent, a shifted clock).
`segmented sell` gets a warm process of its own, from which its workers fork.

The warm process forks twice, and the one in between ends, so that the kernel gives the program to this process, which
is a subreaper for that moment: it can be waited for as any child.
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import gc
import inspect
import json
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib import import_module
from types import ModuleType
from typing import Any, Final, NamedTuple

from segmented.testing import worker_main
from tests.support.paths import ROOT

MODULES: Final = (
    *("celery.bin.celery", "celery.bin.worker", "celery.apps.worker", "celery.apps.beat", "celery.backends.redis"),
    *("celery.concurrency.prefork", "celery.concurrency.solo", "celery.concurrency.thread", "kombu.transport.redis"),
    *("celery.worker.worker", "celery.worker.consumer", "sqlalchemy.dialects.postgresql.psycopg", "redis.asyncio"),
    *(
        "sqlalchemy.dialects.sqlite.pysqlite",
        "segmented.celery.apps",
        "segmented.celery.tasks",
        "segmented.dedup.celery",
    ),
    *("segmented.testing.wrapping", "segmented.cli.main", "segmented.cli.pool", "segmented.cli.orders"),
    *("segmented.cli.dedup", "segmented.cli.lock", "segmented.cli.sell", "segmented.celery.selling.sale"),
    *("segmented.orders", "segmented.servers"),
    *("django.core.management", "django.db"),
)
"""Modules that most programs of tests import."""
SERVERS: Final = frozenset({"celery", "django", "flask", "uvicorn"})
"""Modules of other packages that serve an application of a test."""
SET_NAME: Final = 15
"""PR_SET_NAME of Linux, for names of up to NAME_MAX bytes."""
NAME_MAX: Final = 15
SUBREAPER: Final = 36
"""PR_SET_CHILD_SUBREAPER of Linux."""
HIGH: Final = 700
"""File descriptors from here on are in nobody's way."""
KEPT: Final = ("PYTHONPATH", "PYTHONWARNINGS")
"""Variables for Python's own start that `_run` obeys; if another one has another value, a program starts by itself."""


class Program(NamedTuple):
    """What Python is asked to run: one of code, a module and a file."""

    kind: str
    what: str
    words: list[str]


def program_of(words: list[str]) -> Program | None:
    """Return the program of a command if it can be a fork."""
    match words:
        case [sys.executable, "-m", module, *rest] if module in SERVERS or module.startswith("tests."):
            found = Program("-m", module, rest)
        case [sys.executable, "-P", "-m", "segmented.celery" as module, *rest]:
            found = Program("-P -m", module, rest)
        case [sys.executable, "-c", code, *rest] if code.startswith("from segmented.__main__ import main"):
            found = Program("-c", code, rest)
        case [sys.executable, "-P", worker_main.__file__, folder, "0.0", *rest]:
            found = Program("-P", worker_main.__file__, [folder, "0.0", *rest])
        case _:
            return None
    return None if {"gevent", "eventlet"} & set(words) else found


class WarmPopen(subprocess.Popen[Any]):
    """`subprocess.Popen`, whose known programs are forks."""

    def _execute_child(self, *values: Any) -> None:  # noqa: ANN401  # as the standard library's
        start = super()._execute_child  # type: ignore[misc]  # not in its stubs
        asked = inspect.signature(start).bind(*values).arguments
        program = None if isinstance(asked["args"], str) else program_of([os.fspath(word) for word in asked["args"]])
        environment = dict(os.environ if asked["env"] is None else asked["env"])
        is_plain = not (asked["preexec_fn"] or asked["executable"]) and asked["process_group"] == -1
        if program is None or not is_plain or _start(environment) != _start(os.environ) or not ZYGOTE.is_ours():
            start(*values)
            return
        streams = [asked["p2cread"], asked["c2pwrite"], asked["errwrite"]]
        fds = [number if given == -1 else given for number, given in enumerate(streams)]
        passed = sorted(asked["pass_fds"])
        told = {
            "program": program,
            "folder": os.fspath(asked["cwd"] or os.getcwd()),  # noqa: PTH109  # a text
            "environment": environment,
            "is_leader": bool(asked["start_new_session"]),
            "numbers": [0, 1, 2, *passed],
        }
        self.pid = ZYGOTE.fork(json.dumps(told).encode(), [*fds, *passed])
        self._child_created = True
        pipes = (asked[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"))
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]  # as above


def start_warm() -> None:
    """Let this process start its known programs as forks, where the kernel can give them to it."""
    if sys.platform == "linux":
        subprocess.Popen = WarmPopen  # type: ignore[misc]  # for good: in a run of tests


class Zygote:
    """The warm process of this one, which starts when it is first needed and ends with this one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wire: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = os.getpid()

    def is_ours(self) -> bool:
        """Return whether this process is not a fork of the one that made it."""
        return self._pid == os.getpid()

    def fork(self, told: bytes, fds: list[int]) -> int:
        """Return the process id of a program that has begun."""
        set_process = ctypes.CDLL(None).prctl
        with self._lock:
            if self._wire is None:
                self._process, self._wire = self._start()
            set_process(SUBREAPER, 1)
            try:
                passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
                self._wire.sendmsg([len(told).to_bytes(4, "big")], passed)
                self._wire.sendall(told)
                return int.from_bytes(_read(self._wire, 4), "big")
            finally:
                set_process(SUBREAPER, 0)

    def use(self, wire: socket.socket) -> None:
        """Use the warm process at the other side, in a fork that is not the process which made this."""
        self._wire, self._pid = wire, os.getpid()

    @staticmethod
    def _start() -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair()
        with theirs:
            program = f"from tests.support import warm; warm.serve({theirs.fileno()})"
            process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, pass_fds=[theirs.fileno()])
        return process, ours


ZYGOTE: Final = Zygote()


def _start(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that matter to Python's own start and that `_run` does not obey."""
    ours = ("PYTHON", "LANG", "LC_")
    return {name: value for name, value in environment.items() if name.startswith(ours) and name not in KEPT}


def _read(wire: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = wire.recv(count - len(found))
        if not part:
            raise EOFError
        found += part
    return found


# --- the warm process ---


def serve(fd: int) -> None:
    """Fork for each program that is asked for, until the other side has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for module in MODULES:
        import_module(module)
    gc.collect()
    gc.freeze()
    wire = socket.socket(fileno=fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH))
    os.close(fd)
    _attend(wire)


def _attend(wire: socket.socket) -> None:
    """Fork for each program that is asked for, and run it in its fork."""
    told = _until_forked(wire)
    wire.close()
    if told is None:
        return
    program = Program(*told["program"])
    with warm_workers() if program.words[:1] == ["sell"] else nullcontext():
        _run(program, told["environment"])


@contextmanager
def warm_workers() -> Iterator[None]:
    """Let programs that the block starts be forks of a fork of this warm process, which has one thread so far."""
    ours, theirs = socket.socketpair()
    helper = os.fork()
    if not helper:
        ours.close()
        for number in range(3):
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        _attend(theirs)
        sys.exit()
    theirs.close()
    ZYGOTE.use(ours)
    start_warm()
    try:
        yield
    finally:
        ours.close()
        os.waitpid(helper, 0)


def _until_forked(wire: socket.socket) -> dict[str, Any] | None:
    """Return what a fork is to run, in that fork; or None once the other side has ended."""
    while True:
        head, fds, _, _ = socket.recv_fds(wire, 4, 64)
        if not head:
            return None
        told: dict[str, Any] = json.loads(_read(wire, int.from_bytes(head, "big")))
        alone, held = os.pipe()
        middle = os.fork()
        if not middle:
            if os.fork():
                os._exit(0)
            os.close(held)
            _take_place(told, fds, alone)
            wire.sendall(os.getpid().to_bytes(4, "big"))
            return told
        os.waitpid(middle, 0)
        for number in (alone, held, *fds):
            os.close(number)


def _take_place(told: dict[str, Any], fds: list[int], alone: int) -> None:
    """Become what the starter asked for: its name, session, streams and folder; and wait until it is the parent."""
    ctypes.CDLL(None).prctl(SET_NAME, told["program"][1][:NAME_MAX].encode())
    if told["is_leader"]:
        os.setsid()
    alone, *fds = [_moved(fd) for fd in (alone, *fds)]
    for fd, number in zip(fds, told["numbers"], strict=True):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(told["folder"])
    os.read(alone, 1)  # it ends when the process in between has ended
    os.close(alone)


def _moved(fd: int) -> int:
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH)
    os.close(fd)
    return moved


def _run(program: Program, environment: dict[str, str]) -> None:
    """Run it as a Python that begins here would."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    tempfile.tempdir = None
    for option in environment.get("PYTHONWARNINGS", "").split(","):
        action, _, message = option.partition(":")
        if action:
            warnings.filterwarnings(action, re.escape(message))  # type: ignore[arg-type]  # one of its words
    streams = {
        "stdin": open(0, closefd=False),  # noqa: SIM115  # as Python opens them
        "stdout": open(1, "w", closefd=False),  # noqa: SIM115  # as above
        "stderr": open(2, "w", buffering=1, errors="backslashreplace", closefd=False),  # noqa: SIM115  # as above
    }
    for name, stream in streams.items():
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    first = {"-m": [os.getcwd()], "-c": [""], "-P": [], "-P -m": []}[program.kind]  # noqa: PTH109  # a text
    sys.path[:] = [*first, *paths, *(path for path in sys.path[1:] if path not in own)]
    sys.argv = [program.kind if program.kind == "-c" else program.what, *program.words]
    if program.kind.endswith("-m"):
        runpy.run_module(program.what, run_name="__main__", alter_sys=True)
    elif program.kind == "-P":
        runpy.run_path(program.what, run_name="__main__")
    else:
        sys.modules["__main__"] = ModuleType("__main__")
        exec(program.what, vars(sys.modules["__main__"]))  # noqa: S102  # as `python -c` does
