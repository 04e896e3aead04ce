"""`segmented dedup`: who holds a key of deduplication, what is known of one, and how to free, settle or reap it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any, Final, Literal

import typer

from segmented.cli.dedup_view import HEADS, as_json, row, sentences
from segmented.cli.output import (
    DEFAULT_URL,
    STDOUT,
    JsonOption,
    UrlOption,
    YesOption,
    print_table,
    require_somebody,
    shown,
    write_json,
)
from segmented.dedup import operator
from segmented.dedup.options import DAY
from segmented.dedup.reaper import LIMIT as REAP_MAX, ReapCount, reap as reap_namespace
from segmented.errors import InvalidInput
from segmented.exits import tell
from segmented.models.dedup import RecordName, RecordState
from segmented.plans import run_sync
from segmented.stores.redis import RedisStore

LIST_MAX: Final = 1_000
EXIT_REFUSED: Final = 1

dedup = typer.Typer(no_args_is_help=True, help="Look at the keys of deduplication on a server; free or settle one.")

KeyArgument = Annotated[
    str, typer.Argument(metavar="KEY", help="The record's key, as list shows it; with --given the caller's own.")
]
NamespaceOption = Annotated[
    str | None, typer.Option("--namespace", metavar="NS", help="Look there only; else in all of the server.")
]
GivenOption = Annotated[bool, typer.Option("--given", help="KEY is an idempotency key that a caller gave.")]
MessageOption = Annotated[
    str, typer.Option(metavar="ID", help="Not the key itself, but this message of it, whose run keeps out its copies.")
]
ScopeOption = Annotated[
    str | None,
    typer.Option(metavar="SCOPE", help="With --given: the task or function it was used under; else the namespace."),
]


@dedup.command("list")
def list_keys(
    *,
    namespace: NamespaceOption = None,
    state: Annotated[
        Literal["waiting", "running", "unknown", "lapsed", "all"], typer.Option(help="List these only.")
    ] = "all",
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="List so many at most.")] = LIST_MAX,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """List the keys that are held, those first that end first: who holds each, and for how much longer.

    Of a holder's id only the start is shown. Keys that change hands meanwhile may be missed.
    """
    wanted = None if state == "all" else state
    with RedisStore.from_url(url) as store:
        found = operator.list_keys(store, namespace, state=wanted, limit=limit)
    if json_file is not None:
        write_json(json_file, {"keys": [asdict(held) for held in found.keys], "is_complete": found.is_complete})
    if json_file == STDOUT:
        return
    print_table(HEADS, [row(held) for held in found.keys])
    if not found.is_complete:
        typer.echo("there are more: narrow --namespace or --state, or raise --limit", err=True)


@dedup.command()
def explain(
    key: KeyArgument,
    *,
    namespace: NamespaceOption = None,
    given: GivenOption = False,
    scope: ScopeOption = None,
    message: MessageOption = "",
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Say all that is known of a key, and what would become of a repeat now. Results are not shown."""
    with RedisStore.from_url(url) as store:
        record = operator.find(store, key, namespace=namespace, is_given=given, scope=scope)
        state = operator.read(store, record, message=message)
    if state is None:
        what = f"message {message!r} of key {key!r}" if message else f"key {key!r}"
        sentence = f"nothing is known of {what}"
        raise InvalidInput(sentence)
    if json_file is not None:
        write_json(json_file, as_json(record, state))
    if json_file != STDOUT:
        _say(record, state)


@dedup.command()
def free(  # an option each
    key: KeyArgument,
    *,
    namespace: NamespaceOption = None,
    given: GivenOption = False,
    scope: ScopeOption = None,
    message: MessageOption = "",
    url: UrlOption = DEFAULT_URL,
    yes: YesOption = False,
    json_file: JsonOption = None,
) -> None:
    """End whatever holds a key, and forget its outcome, so that a repeat runs. Asks first, or needs --yes.

    A holder at work is not stopped: its outcome is refused, but what it does outside the store is done twice when the
    next one runs. Make sure that it is dead.
    """
    is_asked = require_somebody("free", yes=yes)
    with RedisStore.from_url(url) as store:
        record = operator.find(store, key, namespace=namespace, is_given=given, scope=scope)
        if is_asked and not _is_wanted(store, record, message, "Free it, so that a repeat runs?"):
            raise typer.Exit(EXIT_REFUSED)
        freed = operator.free(store, record, message=message)
    if json_file is not None:
        write_json(json_file, asdict(record) | asdict(freed))
    if json_file == STDOUT:
        return
    if freed.state is None:
        typer.echo("free: nothing held it, and no outcome was kept")
    else:
        typer.echo(f"freed: it was {freed.state}, message {shown(freed.message or '-')}")


@dedup.command()
def settle(  # noqa: PLR0913  # each is an option of its own
    key: KeyArgument,
    *,
    done: Annotated[
        str | None, typer.Option(metavar="JSON", help="The work was done; repeats get this result.")
    ] = None,
    not_done: Annotated[bool, typer.Option("--not-done", help="The work was not done; the next repeat runs.")] = False,
    keep: Annotated[float, typer.Option(metavar="SECONDS", min=0.001, help="Keep the result so long.")] = DAY,
    namespace: NamespaceOption = None,
    given: GivenOption = False,
    scope: ScopeOption = None,
    message: MessageOption = "",
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Say what became of a key in the unknown state: --done with the result, or --not-done.

    Ask the provider first: it knows the call by the record's key. Exit code 1 where nothing is unknown.
    """
    result = _result(done, not_done=not_done)
    with RedisStore.from_url(url) as store:
        record = operator.find(store, key, namespace=namespace, is_given=given, scope=scope)
        if not_done:
            is_settled = operator.settle_not_done(store, record, message=message)
        else:
            is_settled = operator.settle_done(store, record, result, keep=keep, message=message)
    if json_file is not None:
        write_json(json_file, asdict(record) | {"is_settled": is_settled})
    if not is_settled:
        tell("nothing to settle: the key is not in the unknown state")
        raise typer.Exit(EXIT_REFUSED)
    if json_file != STDOUT:
        typer.echo(f"settled as {'not done: the next repeat runs' if not_done else 'done: repeats get this result'}")


@dedup.command()
def reap(
    *,
    namespace: NamespaceOption = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Look at so many at most, in each.")] = REAP_MAX,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Free what has lapsed: claims of holders that died, and of messages that did not come. What lives is not touched.

    Safe at any time, also in many places at once. What became unknown waits for settle.
    """
    with RedisStore.from_url(url) as store:
        names = run_sync(operator.namespaces_plan(), store) if namespace is None else (namespace,)
        counts = {name: reap_namespace(store, name, limit=limit) for name in names}
    if json_file is not None:
        write_json(json_file, {"namespaces": {name: asdict(count) for name, count in counts.items()}})
    if json_file != STDOUT:
        print_table(("namespace", "freed", "unknown", "held"), [_counted(*one) for one in counts.items()])


def _counted(name: str, count: ReapCount) -> tuple[str, ...]:
    return (shown(name), *(str(number) for number in (count.freed, count.unknown, count.held)))


def _result(done: str | None, *, not_done: bool) -> Any:  # noqa: ANN401  # any JSON
    if (done is None) != not_done:
        message = "settle needs either --done with a result in JSON, or --not-done"
        raise InvalidInput(message)
    if done is None:
        return None
    try:
        return json.loads(done)
    except json.JSONDecodeError as error:
        message = f"--done is no JSON: {error.msg} at character {error.pos + 1}; a text needs its quotes"
        raise InvalidInput(message) from error
    except (ValueError, RecursionError) as error:
        message = f"--done is JSON that cannot be read here: {str(error).partition(';')[0]}"
        raise InvalidInput(message) from error


def _is_wanted(store: RedisStore, record: RecordName, message: str, question: str) -> bool:
    state = operator.read(store, record, message=message)
    if state is not None:
        _say(record, state)
    return typer.confirm(question)


def _say(record: RecordName, state: RecordState) -> None:
    for sentence in sentences(record, state):
        typer.echo(sentence)
