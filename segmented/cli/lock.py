"""`segmented lock`: show and list locks of any kind on a Redis or Valkey server, and revoke one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Annotated, Any, Final

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
from segmented.errors import SegmentedError, WrongKind
from segmented.files import STDOUT
from segmented.locks import operator
from segmented.locks.durations import checked_name
from segmented.models.locks import LockHolder, LockState
from segmented.protocol import ShowLock
from segmented.stores.redis import RedisStore

LIST_MAX: Final = 1_000
STATES_AT_ONCE: Final = 200
EXIT_REFUSED: Final = 1

lock = typer.Typer(no_args_is_help=True, help="Inspect locks of every kind on a server; revoke one.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the lock, as the program passes it.")]


@lock.command()
def show(name: NameArgument, *, url: UrlOption = DEFAULT_URL, json_file: JsonOption = None) -> None:
    """Show a lock's holders, remaining times and waiters, or "free".

    Shows only the start of a holder's id: anyone with the complete id could release the lock.
    """
    name = checked_name(name)
    with RedisStore.from_url(url) as store:
        state = operator.show(store, name)
    if json_file is not None:
        write_json(json_file, {"name": name, "is_free": state is None} | ({} if state is None else asdict(state)))
    if json_file == STDOUT:
        return
    if state is None:
        typer.echo("free")
    else:
        print_table(("", ""), _described(state))


@lock.command()
def revoke(
    name: NameArgument,
    *,
    url: UrlOption = DEFAULT_URL,
    yes: YesOption = False,
    json_file: JsonOption = None,
) -> None:
    """End every lease on a lock and wake its waiters. Asks for confirmation; without a terminal, --yes is required.

    The holder learns of it at its next renewal or release, and may continue until then: make sure that it has stopped,
    or that the protected resource checks fencing tokens.
    """
    name = checked_name(name)
    is_asked = require_somebody("revoke", yes=yes)
    with RedisStore.from_url(url) as store:
        if is_asked and not _is_wanted(operator.show(store, name), name):
            raise typer.Exit(EXIT_REFUSED)
        revoked = operator.revoke(store, name)
    if json_file is not None:
        found = {} if revoked is None else asdict(revoked)
        write_json(json_file, {"name": name, "is_revoked": revoked is not None} | found)
    if json_file == STDOUT:
        return
    if revoked is None:
        typer.echo("free: there was nothing to revoke")
    else:
        token = "" if revoked.fencing_token is None else f", last fencing token {revoked.fencing_token}"
        typer.echo(f"revoked ({revoked.kind}{token})")


@lock.command("list")
def list_locks(
    *,
    match: Annotated[
        str, typer.Option(metavar="GLOB", help="Pattern of names: * any text, ? one character, [abc] one of these.")
    ] = "*",
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum number to list.")] = LIST_MAX,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """List held locks by name. A lock that changes hands during the listing may be missed."""
    with RedisStore.from_url(url) as store:
        found = operator.list_locks(store, match, names_max=limit)
        states = _states(store, found.names)
        if json_file is None:
            _print(states)
        else:
            with json_list(json_file, "locks", {"is_complete": found.is_complete}) as write:
                written = _each_written(states, write)
                if json_file == STDOUT:
                    deque(written, maxlen=0)
                else:
                    _print(written)
    if json_file != STDOUT and not found.is_complete:
        typer.echo(f"there are more than {limit}: narrow --match, or raise --limit", err=True)


def _print(states: Iterable[LockState]) -> None:
    print_table(("name", "kind", "held by", "for", "fence", "wait"), (_row(state) for state in states))


def _each_written(states: Iterable[LockState], write: Callable[[dict[str, Any]], None]) -> Iterator[LockState]:
    for state in states:
        write(asdict(state))
        yield state


def _states(store: RedisStore, names: tuple[str, ...]) -> Iterator[LockState]:
    """Read the locks page by page, so that a long list is never in memory as a whole."""
    for start in range(0, len(names), STATES_AT_ONCE):
        asked = [ShowLock(name, 1) for name in names[start : start + STATES_AT_ONCE]]
        for answer in store.execute_many(asked):
            if isinstance(answer, LockState):
                yield answer
            elif isinstance(answer, SegmentedError) and not isinstance(answer, WrongKind):  # WrongKind: not a lock
                raise answer


def _is_wanted(state: LockState | None, name: str) -> bool:
    if state is None:
        return True
    print_table(("", ""), _described(state))
    return typer.confirm(f"End {state.holder_count} lease(s) on {shown(name)}?")


def _described(state: LockState) -> list[tuple[str, ...]]:
    rows = [("name", shown(state.name)), ("kind", state.kind)]
    if state.is_delayed:
        rows.append(("held by", "nobody: the lock-delay after a lost lease runs"))
    rows += [("held by", f"{_who(holder)}, {_seconds(holder.remaining_ms)}") for holder in state.holders]
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
    return (shown(state.name), state.kind, f"{who}{more}", _seconds(state.free_in_ms), token, wait)


def _who(holder: LockHolder) -> str:
    count = f" x{holder.count}" if holder.count > 1 else ""
    mode = "" if holder.mode in {"exclusive", "permit"} else f" ({holder.mode})"
    return f"{shown(holder.owner) if holder.owner else holder.holder_id_start}{count}{mode}"


def _seconds(milliseconds: int | None) -> str:
    return "no end" if milliseconds is None else f"{milliseconds / 1000:.3f} s"
