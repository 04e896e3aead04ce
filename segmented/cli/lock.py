"""`segmented lock`: show, list and revoke locks of any kind, and run a command of the shell under one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from segmented.cli.output import (
    DEFAULT_URL,
    JsonOption,
    UrlOption,
    YesOption,
    json_list,
    print_table,
    require_somebody,
    shown,
    write_json,
)
from segmented.errors import AcquireTimeout, InvalidInput, SegmentedError, StockError, StoreRefused, WrongKind
from segmented.files import STDOUT
from segmented.keys import segment_of, shard_keys
from segmented.locks import Lock, operator
from segmented.locks.durations import checked_name
from segmented.models import ShardedState
from segmented.models.locks import LockHolder, LockState
from segmented.plans import run_sync
from segmented.process import tell
from segmented.protocol import ShowLock
from segmented.stock import find_pool
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from segmented.locks import Lease

LIST_MAX: Final = 1_000
STATES_AT_ONCE: Final = 200
KEYS_MAX: Final = 1_000_000
EXIT_REFUSED: Final = 1
HEADS: Final = ("name", "kind", "held by", "process", "age", "left", "fence", "wait")
NOTHING: Final = (
    "no lock of segmented, segmented.compat, redis-py, python-redis-lock or Redisson has this name here, and no pool "
    "has it and a held segment"
)
SEGMENTS_END: Final = (
    "{} segment(s) of this pool are held; each is free when its order is confirmed or cancelled, or its lease expires"
)

EXIT_HELD: Final = 75
"""EX_TEMPFAIL of sysexits.h: another holder has the lock; try again later."""
EXIT_LOST: Final = 74
"""EX_IOERR of sysexits.h: the lease was lost, and the command was ended."""
EXIT_NOT_FOUND, EXIT_NOT_STARTED, EXIT_SIGNALLED = 127, 126, 128
"""As shells have them; the last one plus the signal's number."""
RENEW_MAX: Final = 30 * 24 * 3600.0
PASSED_ON: Final = (signal.SIGTERM, signal.SIGHUP)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the lock, as the program passes it.")]

lock = typer.Typer(
    no_args_is_help=True, help="Inspect locks of every kind on a server; revoke one; run a command under one."
)


@lock.command()
def show(name: NameArgument, *, url: UrlOption = DEFAULT_URL, json_file: JsonOption = None) -> None:
    """Show a lock's holders, their processes, ages and times left, and its waiters, or that it is free.

    Looks for locks of every kind of ours, of segmented.compat, redis-py, python-redis-lock and Redisson, and for held
    segments of a pool of this name. Shows only the start of a holder's id: anyone with the complete id could release
    the lock.
    """
    name = checked_name(name)
    with RedisStore.from_url(url) as store:
        state = operator.show(store, name)
        segments = [] if state is not None else _held_segments(store, name)
        other = None if state is not None or segments else _other_data(store, name)
    found = {"name": name, "is_free": not (state or segments)} | ({} if state is None else asdict(state))
    if write_json(json_file, found | ({"segments": list(map(asdict, segments))} if segments else {})):
        return
    if state is not None:
        print_table(("", ""), _described(state))
    elif segments:
        print_table(HEADS, map(_row, segments))
    else:
        typer.echo(f"free: {NOTHING}" if other is None else f"free, except for a key that is not ours: {other}")


@lock.command()
def revoke(
    name: NameArgument, *, url: UrlOption = DEFAULT_URL, yes: YesOption = False, json_file: JsonOption = None
) -> None:
    """End every lease on a lock and wake its waiters. Asks for confirmation; without a terminal, --yes is required.

    The holder learns of it at its next renewal or release, and may continue until then: make sure that it has stopped,
    or that the protected resource checks fencing tokens. Exits with 1 if there was nothing to revoke. Locks of
    python-redis-lock and Redisson, and segments of a pool, are refused: they have ways of their own to end.
    """
    name = checked_name(name)
    is_asked = require_somebody("revoke", yes=yes)
    with RedisStore.from_url(url) as store:
        if is_asked and not _is_wanted(operator.show(store, name), name):
            raise typer.Exit(EXIT_REFUSED)
        revoked = operator.revoke(store, name)
        segments = [] if revoked is not None else _held_segments(store, name)
    found = {} if revoked is None else asdict(revoked)
    write_json(json_file, {"name": name, "is_revoked": revoked is not None} | found)
    if revoked is not None and json_file != STDOUT:
        token = "" if revoked.fencing_token is None else f", last fencing token {revoked.fencing_token}"
        typer.echo(f"revoked ({revoked.kind}{token})")
    elif revoked is None:
        tell(f"nothing to revoke: {SEGMENTS_END.format(len(segments)) if segments else NOTHING}")
        raise typer.Exit(EXIT_REFUSED)


@lock.command("list")
def list_locks(
    *,
    match: Annotated[
        str, typer.Option(metavar="GLOB", help="Pattern of names: * any text, ? one character, [abc] one of these.")
    ] = "*",
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum number to list.")] = LIST_MAX,
    others: Annotated[
        bool, typer.Option("--others", help="Also read every key that matches, to find locks of other libraries.")
    ] = False,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """List held locks by name, with those of segmented.compat and the held segments of pools.

    A lock that changes hands during the listing may be missed.
    """
    with RedisStore.from_url(url) as store:
        found = operator.list_locks(store, match, names_max=limit)
        segments = run_sync(operator.list_plan(match, limit, places=["segment"]), store)
        keys = [*segments.names, *(_keys(store, match) if others else ())]
        is_complete = found.is_complete and segments.is_complete
        states = _states(store, found.names, keys)
        if json_file is None:
            _print(states)
        else:
            with json_list(json_file, "locks", {"is_complete": is_complete}) as write:
                written = _each_written(states, write)
                if json_file == STDOUT:
                    deque(written, maxlen=0)
                else:
                    _print(written)
    if json_file != STDOUT and not is_complete:
        typer.echo(f"there are more than {limit}: narrow --match, or raise --limit", err=True)


def _print(states: Iterable[LockState]) -> None:
    if not sys.stdout.isatty():
        typer.echo("\t".join(HEADS), err=True)  # not among the lines that a program reads
    print_table(HEADS, (_row(state) for state in states))


def _each_written(states: Iterable[LockState], write: Callable[[dict[str, Any]], None]) -> Iterator[LockState]:
    for state in states:
        write(asdict(state))
        yield state


def _states(store: RedisStore, names: Sequence[str], keys: Sequence[str] = ()) -> Iterator[LockState]:
    """Read the locks page by page, so that a long list is never in memory as a whole."""
    known: set[str] = set()
    for page in _pages(names):
        answers = _answers(store, [ShowLock(name, 1) for name in page])
        missing = [name for name, answer in zip(page, answers, strict=True) if answer is None]
        known.update(missing)
        compat = iter(_answers(store, [ShowLock(name, 1, is_key=True) for name in missing]))
        yield from (found for answer in answers if (found := next(compat) if answer is None else answer))
    for page in _pages([key for key in keys if key not in known]):
        for answer in _answers(store, [ShowLock(key, 1, is_key=True) for key in page]):
            if answer is not None:
                place = segment_of(answer.name)
                yield answer if place is None else replace(answer, name=_segment_name(*place))


def _pages(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[start : start + STATES_AT_ONCE] for start in range(0, len(names), STATES_AT_ONCE))


def _answers(store: RedisStore, asked: Sequence[ShowLock]) -> list[LockState | None]:
    """Return what is held; None also for a key that is not a lock, or that is not ours and may not be read."""
    found: list[LockState | None] = []
    for one, answer in zip(asked, store.execute_many(asked), strict=True):
        is_passed_over = isinstance(answer, WrongKind) or (one.is_key and isinstance(answer, StoreRefused))
        if isinstance(answer, SegmentedError) and not is_passed_over:
            raise answer
        found.append(answer if isinstance(answer, LockState) else None)
    return found


def _keys(store: RedisStore, match: str) -> Iterable[str]:
    """Return the keys that another library may use for a lock whose name matches."""
    matches = {match, match if match == "*" else f"{operator.PYTHON_REDIS_LOCK}{match}"}
    plans = (operator.list_plan(one, KEYS_MAX, places=["key"]) for one in sorted(matches))
    return [name for plan in plans for name in run_sync(plan, store).names]


def _held_segments(store: RedisStore, sku: str) -> list[LockState]:
    """Return the held segments of the pool of this name, if there is one."""
    try:
        state = find_pool(store, sku).state()
    except (InvalidInput, StockError):  # not a name of a pool, or none is open
        return []
    shards = state.shards if isinstance(state, ShardedState) else (state,)
    keys = [f"{shard_keys(shard.sku).lock}:{at}" for shard in shards for at in range(shard.segment_count)]
    return list(_states(store, (), keys))


def _segment_name(sku: str, shard: str, segment: int) -> str:
    return f"{sku} {'' if shard == '0' else f'shard {shard} '}segment {segment}"


def _other_data(store: RedisStore, name: str) -> str | None:
    try:
        store.execute(ShowLock(name, 1, is_key=True))
    except WrongKind as error:
        return str(error)
    except StoreRefused:
        return f"the account may not read {shown(name)}, where segmented.compat and other libraries keep a lock"
    return None


def _is_wanted(state: LockState | None, name: str) -> bool:
    if state is None:
        return True
    print_table(("", ""), _described(state))
    return typer.confirm(f"End {state.holder_count} lease(s) on {shown(name)}?")


def _described(state: LockState) -> list[tuple[str, ...]]:
    rows = [("name", shown(state.name)), ("kind", state.kind)]
    if state.is_delayed:
        rows.append(("held by", "nobody: the lock-delay after a lost lease runs"))
    for holder in state.holders:
        process = f" of {shown(holder.process)}" if holder.process else ""
        rows.append(("held by", f"{_who(holder)}{process}, {_left(holder.remaining_ms)}"))
    if state.held_ms is not None:
        rows.append(("held for", _seconds(state.held_ms)))
    if state.holder_count > len(state.holders):
        rows.append(("held by", f"{state.holder_count - len(state.holders)} more"))
    if state.permits is None:
        rows.append(("free in", _seconds(state.free_in_ms)))
    else:  # a name with a free permit is not held, and the others need not end together
        free = max(0, state.permits - state.holder_count)
        rows.append(("free permits", str(free)))
        if not free and state.holders:
            rows.append(("next one in", _seconds(state.holders[0].remaining_ms)))
    counts = {"fence": state.fencing_token, "permits": state.permits, "waiters": state.waiters}
    rows += [(word, str(count)) for word, count in counts.items() if count is not None]
    if state.listeners is not None:
        rows.append(("listeners", f"{state.listeners} (processes that wait, or did a moment ago)"))
    return list(rows)


def _row(state: LockState) -> tuple[str, ...]:
    who = "nobody (delay)" if state.is_delayed else _who(state.holders[0]) if state.holders else ""
    more = f" +{state.holder_count - 1}" if state.holder_count > 1 else ""
    waiting = state.waiters if state.waiters is not None else state.listeners
    token, wait = (str(value) if value is not None else "-" for value in (state.fencing_token, waiting))
    process = next((shown(holder.process) for holder in state.holders if holder.process), "-")
    age = "-" if state.held_ms is None else _seconds(state.held_ms)
    return (shown(state.name), state.kind, f"{who}{more}", process, age, _left(state.free_in_ms), token, wait)


def _who(holder: LockHolder) -> str:
    count = f" x{holder.count}" if holder.count > 1 else ""
    mode = "" if holder.mode in {"exclusive", "permit"} else f" ({holder.mode})"
    return f"{shown(holder.owner) if holder.owner else holder.holder_id_start}{count}{mode}"


def _left(milliseconds: int | None) -> str:
    return "no end" if milliseconds is None else f"{_seconds(milliseconds)} left"


def _seconds(milliseconds: int | None) -> str:
    return "no end" if milliseconds is None else f"{milliseconds / 1000:.3f} s"


@lock.command(context_settings={"allow_interspersed_args": False})
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
    """Yield a function that takes the sender of signals to the command; from then on the command gets our signals.

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
