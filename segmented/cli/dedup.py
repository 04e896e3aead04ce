"""`segmented dedup`: list, explain, free and settle deduplication keys.

Results are never shown: they may be confidential.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from segmented.cli.output import (
    DEFAULT_URL,
    JsonOption,
    UrlOption,
    YesOption,
    is_said,
    print_table,
    require_somebody,
    shown,
    write_json,
)
from segmented.dedup import operator
from segmented.dedup.operator import HeldKey, as_json, seconds, sentences
from segmented.dedup.terms import DAY
from segmented.errors import InvalidInput
from segmented.files import STDOUT
from segmented.models.dedup import RecordName, RecordState
from segmented.plans.drivers import Store
from segmented.process import tell
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from celery import Celery

    from segmented.dedup.celery.task import Once

LIST_MAX: Final = 1_000
NAMED: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
EXIT_REFUSED: Final = 1
dedup = typer.Typer(no_args_is_help=True, help="Inspect deduplication keys on a server; free or settle one.")
KeysArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY", help="Key as `list` shows it, with --given the caller's, with --task its arguments."),
]
TaskOption = Annotated[
    str | None,
    typer.Option(
        "--task", metavar="NAME", help="Task whose call with these arguments is meant: JSON, text, NAME=VALUE."
    ),
]
AppOption = Annotated[
    str | None,
    typer.Option("--app", "-A", metavar="MODULE", help="With --task: Celery app. [default: the task's module]"),
]
KeyArgument = Annotated[
    str, typer.Argument(metavar="KEY", help="Key as `list` shows it, or with --given the caller's idempotency key.")
]
NamespaceOption = Annotated[
    str | None, typer.Option("--namespace", metavar="NS", help="Namespace to search. [default: all]")
]
GivenOption = Annotated[bool, typer.Option("--given", help="Treat KEY as an idempotency key that a caller passed.")]
MessageOption = Annotated[str, typer.Option(metavar="ID", help="Act on this message's own run instead of the key.")]
ScopeOption = Annotated[
    str | None,
    typer.Option(metavar="SCOPE", help="With --given: task or function that used the key. [default: the namespace]"),
]
HEADS = ("state", "age", "for", "task", "message", "attempt", "holder", "namespace", "key")


@dedup.command("list")
def list_keys(
    context: typer.Context,
    *,
    namespace: NamespaceOption = None,
    state: Annotated[
        Literal["waiting", "running", "unknown", "lapsed", "all"], typer.Option(help="State to list.")
    ] = "all",
    task: Annotated[str | None, typer.Option(metavar="NAME", help="Task or function to list. [default: all]")] = None,
    app: Annotated[
        str | None,
        typer.Option("--app", "-A", metavar="MODULE", help="Celery app whose records to list. [default: --url]"),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum number to list.")] = LIST_MAX,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """List held keys, soonest to end first, with their holders and remaining times.

    Shows the age of the run or message, and only the start of a holder's id. May miss keys that change hands meanwhile.
    """
    wanted = None if state == "all" else state
    with RedisStore.from_url(url) if app is None else _store_of_app(context, app) as store:
        found = operator.list_keys(store, namespace, state=wanted, task=task, limit=limit)
    if write_json(json_file, {"keys": [asdict(held) for held in found.keys], "is_complete": found.is_complete}):
        return
    print_table(HEADS, [_row(held) for held in found.keys])
    if not found.is_complete:
        typer.echo("there are more: narrow --namespace, --state or --task, or raise --limit", err=True)


@dedup.command()
def explain(  # noqa: PLR0913  # each is an option of its own
    context: typer.Context,
    keys: KeysArgument = None,
    *,
    task: TaskOption = None,
    app: AppOption = None,
    namespace: NamespaceOption = None,
    given: GivenOption = False,
    scope: ScopeOption = None,
    message: MessageOption = "",
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Show everything known about a key, and what a repeat would get now. Results are not shown."""
    with _store(context, url, task, app) as store:
        record = _record(store, keys, task, app, message=message, namespace=namespace, given=given, scope=scope)
        state = operator.read(store, record, message=message)
    if state is None:
        what = f"message {message!r} of key {record.key!r}" if message else f"key {record.key!r}"
        raise InvalidInput(f"nothing is known of {what}")
    if not write_json(json_file, as_json(record, state)):
        _say(record, state)


@dedup.command()
def free(  # noqa: PLR0913  # each is an option of its own
    context: typer.Context,
    keys: KeysArgument = None,
    *,
    task: TaskOption = None,
    app: AppOption = None,
    namespace: NamespaceOption = None,
    given: GivenOption = False,
    scope: ScopeOption = None,
    message: MessageOption = "",
    url: UrlOption = DEFAULT_URL,
    yes: YesOption = False,
    json_file: JsonOption = None,
) -> None:
    """End the claim on a key and delete its outcome, so that a repeat runs. Asks for confirmation unless --yes.

    This does not stop a running holder. Its outcome is refused, but its effects outside the store happen twice once the
    next one runs: make sure that it is dead.
    """
    is_asked = require_somebody("free", yes=yes)
    with _store(context, url, task, app) as store:
        record = _record(store, keys, task, app, message=message, namespace=namespace, given=given, scope=scope)
        if is_asked and not _is_wanted(store, record, message, "Free it, so that a repeat runs?"):
            raise typer.Exit(EXIT_REFUSED)
        freed = operator.free(store, record, message=message)
    if write_json(json_file, asdict(record) | asdict(freed)):
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
        str | None, typer.Option(metavar="JSON", help="Record that the work was done; repeats get this result.")
    ] = None,
    not_done: Annotated[
        bool, typer.Option("--not-done", help="Record that the work was not done; the next repeat runs.")
    ] = False,
    keep: Annotated[float, typer.Option(metavar="SECONDS", min=0.001, help="Time to keep the result.")] = DAY,
    namespace: NamespaceOption = None,
    given: GivenOption = False,
    scope: ScopeOption = None,
    message: MessageOption = "",
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Settle a key in the unknown state: --done with the result, or --not-done.

    Ask the provider first: it knows the call by the record's key. Exit code 1 if the key is not in the unknown state.
    """
    result = _result(done, not_done=not_done)
    with RedisStore.from_url(url) as store:
        record = operator.find(store, key, namespace=namespace, is_given=given, scope=scope)
        if not_done:
            is_settled = operator.settle_not_done(store, record, message=message)
        else:
            is_settled = operator.settle_done(store, record, result, keep=keep, message=message)
    write_json(json_file, asdict(record) | {"is_settled": is_settled})
    if not is_settled:
        tell("nothing to settle: the key is not in the unknown state")
        raise typer.Exit(EXIT_REFUSED)
    if json_file != STDOUT:
        typer.echo(f"settled as {'not done: the next repeat runs' if not_done else 'done: repeats get this result'}")


def _store(context: typer.Context, url: str, task: str | None, app: str | None) -> AbstractContextManager[Store]:
    if task is not None:
        _refuse_url(context, "--task")
        return nullcontext(_task_named(task, app).once_plan.store)
    if app is not None:
        raise InvalidInput("--app is for the call of a task: give --task NAME too, or leave --app out")
    return RedisStore.from_url(url)


def _store_of_app(context: typer.Context, app: str) -> AbstractContextManager[Store]:
    from segmented.dedup.celery.settings import OnceSettings  # noqa: PLC0415  # Celery is an extra

    _refuse_url(context, "--app")
    return nullcontext(OnceSettings(_app_named(app)).get().store)


def _refuse_url(context: typer.Context, option: str) -> None:
    if is_said(context, "url"):
        raise InvalidInput(f"--url and {option} name two servers: a Celery app keeps its records on its own; give one")


def _record(  # each is an option of its own
    store: Store,
    keys: list[str] | None,
    task: str | None,
    app: str | None,
    *,
    message: str,
    namespace: str | None,
    given: bool,
    scope: str | None,
) -> RecordName:
    if task is not None:
        return _record_of_call(_task_named(task, app), keys or (), message=message)
    if keys is None or len(keys) != 1:
        raise InvalidInput(f"{len(keys or ())} keys were given: give one, or --task NAME with the arguments of a call")
    return operator.find(store, keys[0], namespace=namespace, is_given=given, scope=scope)


def _task_named(name: str, app: str | None) -> Once:
    """Return a deduplicated task. `app` is the module of its app, as `celery -A` takes it; default: the task's module.

    Raises InvalidInput if there is no such app or task.
    """
    module = app or name.rpartition(".")[0]
    if not module:
        raise InvalidInput(f"task {name!r} does not name its module: give the module of its Celery app with --app")
    found = _app_named(module)  # first: without Celery the error names it, not what it brings
    from segmented.dedup.celery.task import Once  # noqa: PLC0415  # Celery is an extra

    found.loader.import_default_modules()
    found.finalize()
    task = found.tasks.get(name)
    if not isinstance(task, Once) or task.once is None:
        known = ", ".join(
            sorted(one for one, it in found.tasks.items() if isinstance(it, Once) and it.once is not None)
        )
        raise InvalidInput(f"app {module!r} has no task {name!r} with base=Once; it has: {known or 'none'}")
    return task


def _app_named(module: str) -> Celery:
    from celery.app.utils import find_app  # noqa: PLC0415  # an extra

    try:
        found: Celery = find_app(module)
    except (ImportError, AttributeError) as error:
        message = f"there is no Celery app in {module!r}: give its module with --app, and run this where it is imported"
        raise InvalidInput(message) from error
    return found


def _record_of_call(task: Once, words: Sequence[str], *, message: str) -> RecordName:
    """Return the record of a call. A word is JSON, or else a text; one such as `size=5` names its parameter."""
    arguments: list[Any] = []
    options: dict[str, Any] = {}
    for word in words:
        match = NAMED.fullmatch(word)
        if match:
            options[match[1]] = _value(match[2])
        else:
            arguments.append(_value(word))
    try:
        key = task.once_key(*arguments, **options)
    except TypeError as error:
        raise InvalidInput(f"task {task.name!r} cannot be called with these arguments: {error}") from error
    return task.once_plan.record_to_show(key, message)


def _value(word: str) -> Any:  # noqa: ANN401  # any JSON
    with suppress(ValueError):
        return json.loads(word)
    return word


def _result(done: str | None, *, not_done: bool) -> Any:  # noqa: ANN401  # any JSON
    if (done is None) != not_done:
        raise InvalidInput("settle needs either --done with a result in JSON, or --not-done")
    if done is None:
        return None
    try:
        return json.loads(done)
    except json.JSONDecodeError as error:
        message = f"--done is not valid JSON: {error.msg} at character {error.pos + 1}; a string needs quotes"
        raise InvalidInput(message) from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"--done is JSON that cannot be read here: {str(error).partition(';')[0]}") from error


def _is_wanted(store: Store, record: RecordName, message: str, question: str) -> bool:
    state = operator.read(store, record, message=message)
    if state is not None:
        _say(record, state)
    return typer.confirm(question)


def _say(record: RecordName, state: RecordState) -> None:
    for sentence in sentences(record, state):
        typer.echo(sentence)


def _row(held: HeldKey) -> tuple[str, ...]:
    ends = held.ends_in_ms
    lasts = f"ended {seconds(-ends)} ago" if ends is not None and ends <= 0 else seconds(ends)
    words = (held.task, held.message, str(held.attempt), held.holder_id_start or "-", held.namespace, held.key)
    return (held.state, seconds(held.age_ms), lasts, *(shown(word) for word in words))
