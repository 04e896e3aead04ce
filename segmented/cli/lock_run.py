"""`segmented lock run`: a command of the shell under a lock, such as a cron job that runs on several machines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from segmented.cli.output import DEFAULT_URL, UrlOption
from segmented.errors import AcquireTimeout, InvalidInput, SegmentedError
from segmented.locks import Lock
from segmented.process import tell
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from segmented.locks import Lease

EXIT_HELD: Final = 75
"""EX_TEMPFAIL of sysexits.h: another holder has the lock; try again later."""
EXIT_LOST: Final = 74
"""EX_IOERR of sysexits.h: the lease was lost, and the command was ended."""
EXIT_NOT_FOUND, EXIT_NOT_STARTED, EXIT_SIGNALLED = 127, 126, 128
"""As shells have them; the last one plus the signal's number."""
RENEW_MAX: Final = 30 * 24 * 3600.0
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the lock, as the program passes it.")]
PASSED_ON: Final = (signal.SIGTERM, signal.SIGHUP)


def run(
    name: NameArgument,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND [ARGUMENTS]...", help="Command to run.")],
    *,
    ttl: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="Life of the lease after this process dies, seconds.")
    ] = 30.0,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="Maximum wait for the lock, seconds; 0: one attempt.")
    ] = 0.0,
    grace: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="Time between SIGTERM and SIGKILL once the lease is lost.")
    ] = 5.0,
    url: UrlOption = DEFAULT_URL,
) -> None:
    """Run a command while holding a lock, and release the lock when the command ends.

    The lease is renewed while the command runs. If it is lost, the command gets SIGTERM, and SIGKILL after --grace. The
    command finds the fencing token in SEGMENTED_FENCING_TOKEN. SIGTERM and SIGHUP are passed on to it.

    Exits with the command's own code, or 128 plus the number of the signal that ended it; 75 if another holder had the
    lock, and nothing ran; 74 if the lease was lost; 126 or 127 if the command cannot be started.
    """
    command = command[1:] if command[0] == "--" else command
    if not command:
        raise InvalidInput(f"there is no command after the name: segmented lock run {name} -- COMMAND")
    with RedisStore.from_url(url) as store:
        try:
            lease = Lock(store, name, ttl=ttl, renew=True, renew_max=RENEW_MAX).acquire(timeout=timeout)
        except AcquireTimeout:
            tell(f"lock {name!r} is held; nothing was run")
            raise typer.Exit(EXIT_HELD) from None
        code = _ran(lease, command, grace)
        if code is None:
            raise typer.Exit(EXIT_LOST)
        try:
            lease.release()
        except SegmentedError as error:
            tell(f"lock {name!r} could not be released and ends with its lease: {error}")
    raise typer.Exit(code)


def _ran(lease: Lease, command: list[str], grace: float) -> int | None:
    """Run the command; return its exit code, or None if the lease was lost.

    From a terminal it stays in its foreground group, so that it can read and gets Ctrl-C. Otherwise, as from cron, it
    has a group of its own: what a shell script started ends with it.
    """
    is_typed = sys.stdin is not None and sys.stdin.isatty()
    around = {**os.environ, "SEGMENTED_LOCK": lease.name, "SEGMENTED_FENCING_TOKEN": str(lease.fencing_token)}
    lost = threading.Event()
    with _passing_on(PASSED_ON if is_typed else (*PASSED_ON, signal.SIGINT)) as begin:
        try:
            child = subprocess.Popen(command, env=around, process_group=None if is_typed else 0)  # noqa: S603  # the command that the caller typed
        except FileNotFoundError:
            tell(f"there is no command {command[0]!r}")
            return EXIT_NOT_FOUND
        except OSError as error:
            tell(f"{command[0]!r} cannot be started: {error.strerror}")
            return EXIT_NOT_STARTED
        send = child.send_signal if is_typed else partial(_send_to_group, child.pid)
        begin(send)

        def end() -> None:
            lost.set()
            tell(f"the lease on {lease.name!r} is lost: ending the command")
            send(signal.SIGTERM)
            killing = threading.Timer(grace, send, [signal.SIGKILL])
            killing.daemon = True
            killing.start()

        lease.on_lost(end)
        code = _waited(child)
    if lost.is_set():
        return None
    return code if code >= 0 else EXIT_SIGNALLED - code


def _waited(child: subprocess.Popen[bytes]) -> int:
    """Wait for the end; a Ctrl-C reaches the child from the terminal, too, and the child decides what it means."""
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:
            continue


def _send_to_group(group: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)


@contextmanager
def _passing_on(numbers: Sequence[signal.Signals]) -> Iterator[Callable[[Callable[[int], None]], None]]:
    """Yield a function that is told how to send a signal to the command; from then on it gets those that come here.

    One that comes before, while the command starts, is kept for it. An ignored signal stays ignored.
    """
    sends: list[Callable[[int], None]] = []
    early: list[int] = []

    def pass_on(number: int, _: object) -> None:
        if sends:
            sends[0](number)
        else:
            early.append(number)

    def begin(send: Callable[[int], None]) -> None:
        sends.append(send)
        while early:
            send(early.pop())

    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, pass_on) for number in heard}
    try:
        yield begin
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
