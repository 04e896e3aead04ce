"""Changes to an open pool: `segmented pool restock`, `withdraw`, `resize`, both sides if it is gated; and `assign`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from segmented.cli.output import (
    DEFAULT_URL,
    DatabaseOption,
    JsonOption,
    SkuArgument,
    UrlOption,
    is_said,
    shown,
    write_json,
)
from segmented.cli.pool_view import as_json, gate_of, in_all
from segmented.errors import InvalidInput
from segmented.models import Closed, Restocked, TooFew
from segmented.models.ids import plural
from segmented.process import tell
from segmented.stock import Pool, ShardedPool, find_pool
from segmented.stores.redis import RedisStore

EXIT_REFUSED: Final = 1

UnitsArgument = Annotated[int, typer.Argument(metavar="UNITS", help="Number of units.")]
IdOption = Annotated[
    str, typer.Option("--id", metavar="ID", help="Id of this change; a repeat with the same id has no further effect.")
]

QueueOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Queue of the workers that take submitted orders  [default: any]")
]
StepOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:FUNCTION", help="Step that these workers must have, as in SEGMENTED_STEP  [default: any]"
    ),
]


def restock(
    context: typer.Context,
    sku: SkuArgument,
    units: UnitsArgument,
    *,
    change_id: IdOption,
    database: DatabaseOption = None,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Add units while the sale runs, once per id. Exit code 1 if the pool is closed.

    For a gated pool, the order database gets them first. A run with the same id finishes an interrupted one.
    """
    with RedisStore.from_url(url) as store, _changeable(find_pool(store, sku), "restock", context, database) as found:
        answer = in_all(found, found.restock(units, restock_id=change_id))
    _tell_change("restocked", answer, units, json_file)


def withdraw(
    context: typer.Context,
    sku: SkuArgument,
    units: UnitsArgument,
    *,
    change_id: IdOption,
    database: DatabaseOption = None,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Remove free units while the sale runs, all or none, once per id. Exit code 1 if fewer are free.

    For a gated pool, the order database removes them last. A run with the same id finishes an interrupted one.
    """
    with RedisStore.from_url(url) as store, _changeable(find_pool(store, sku), "withdraw", context, database) as found:
        answer = in_all(found, found.withdraw(units, withdraw_id=change_id))
    _tell_change("withdrawn", answer, units, json_file)


def refund(  # noqa: PLR0913  # options of one command, each by name
    context: typer.Context,
    sku: SkuArgument,
    order_id: Annotated[str, typer.Argument(metavar="ORDER", help="Id of the sold order.")],
    *,
    return_id: Annotated[
        str, typer.Option("--return-id", metavar="ID", help="Id of this return; a repeat has no further effect.")
    ],
    units: Annotated[int | None, typer.Option(help="Units to give back  [default: all that the order has]")] = None,
    customer: Annotated[
        str | None, typer.Option(metavar="ID", help="Customer of the order, in a pool in shards with a limit.")
    ] = None,
    database: DatabaseOption = None,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Give units of a sold order back: they are free again, and so is its customer's limit. Once per return id.

    For a gated pool, the order database gives them back first. The money is yours to return.
    """
    with RedisStore.from_url(url) as store, _changeable(find_pool(store, sku), "refund", context, database) as found:
        of_it = {"customer_id": customer} if isinstance(found, ShardedPool) else {}
        if units is None:
            record = found.order(order_id, **of_it)
            if record is None:
                message = f"the pool has no record of order {order_id!r}: give the number of --units to return"
                raise InvalidInput(message)
            units = record.quantity or record.asked
        answer = found.return_units(order_id, units, return_id=return_id, **of_it)
    returned = f"{answer.units} {plural(answer.units, 'unit')} of order {answer.order_id!r}"
    said = f"returned before under this id: {returned}, nothing is changed now"
    if not answer.replay:
        said = f"returned: {returned}, which keeps {answer.quantity}"
    _tell(json_file, {"answer": "returned"} | asdict(answer), said)


def resize(
    context: typer.Context,
    sku: SkuArgument,
    segments: Annotated[int, typer.Argument(metavar="SEGMENTS", help="New number of segments.")],
    *,
    database: DatabaseOption = None,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Change the number of segments while the sale runs, without downtime; free units are split evenly.

    The holder of a removed segment finishes undisturbed. For a gated pool, the order database gets the rows of new
    segments first.
    """
    with RedisStore.from_url(url) as store, _changeable(find_pool(store, sku), "resize", context, database) as found:
        answer = found.resize(segments)
    said = _resized(answer.state.segment_count, was_so=answer.replay)
    _tell(json_file, {"is_changed": not answer.replay} | as_json(answer.state), said)


def expire(
    context: typer.Context,
    sku: SkuArgument,
    *,
    database: DatabaseOption = None,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Give back the units of expired holds, as workers do. For a gated pool, its order database decides each order."""
    with RedisStore.from_url(url) as store, _changeable(find_pool(store, sku), "expire", context, database) as found:
        ended = found.expire()
    states = Counter(one.state for one in ended)
    each = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    said = f"{len(ended)} {plural(len(ended), 'order')} with an expired hold: {each or 'nothing is changed'}"
    _tell(json_file, {"sku": sku, "orders": [asdict(one) for one in ended]}, said)


def assign(
    sku: SkuArgument,
    *,
    queue: QueueOption = None,
    step: StepOption = None,
    any_queue: Annotated[bool, typer.Option("--any-queue", help="Let workers of any queue take them.")] = False,
    any_step: Annotated[
        bool, typer.Option("--any-step", help="Let workers with any step, or none, take them.")
    ] = False,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Name the queue and the step of the workers that take submitted orders from now on. Say both.

    Nobody else takes, sweeps or confirms these orders: until such workers run, they wait. Orders that a worker has
    begun before are finished by it.
    """
    for option, name, is_any in (("queue", queue, any_queue), ("step", step, any_step)):
        if (name is not None) == is_any:
            message = f"give either --{option} NAME or --any-{option}: the command sets both queue and step of {sku!r}"
            raise InvalidInput(message)
    with RedisStore.from_url(url) as store:
        answer = find_pool(store, sku).assign(queue=queue, step=step)
    now = f"queue {shown(queue or 'any')}, step {shown(step or 'any')}"
    said = f"{now} before: nothing is changed" if answer.replay else f"{now} now"
    _tell(json_file, {"is_changed": not answer.replay} | as_json(answer.state), said)


@contextmanager
def _changeable(
    pool: Pool | ShardedPool, verb: str, context: typer.Context, database: str | None
) -> Iterator[Pool | ShardedPool]:
    """Return the pool to change, with its order database if it has one. Raises InvalidInput, PoolMissing."""
    needed = f"{verb} it with --database URL, because its order database must be changed too"
    with gate_of(pool, database, is_said=is_said(context, "database"), needed=needed) as gate:
        yield pool if gate is None else type(pool)(pool.store, pool.sku, gate=gate)


def _tell(file: Path | None, content: dict[str, Any], said: str) -> None:
    if not _write(file, content, said):
        typer.echo(said)


def _write(file: Path | None, content: dict[str, Any], said: str) -> bool:
    """Write an answer; if that fails, the error also says what was done. Return whether it went to standard output."""
    try:
        return write_json(file, content)
    except InvalidInput as error:
        raise InvalidInput(f"{error}; {said}") from error


def _resized(count: int, *, was_so: bool) -> str:
    many = f"{count} {plural(count, 'segment')}"
    return f"{many} before: nothing is changed" if was_so else f"{many} now"


def _tell_change(word: str, answer: Restocked | TooFew | Closed, units: int, json_file: Path | None) -> None:
    if isinstance(answer, Restocked):
        found: dict[str, Any] = {"answer": word} | asdict(answer)
        free = f"{answer.available} {plural(answer.available, 'is')} free now"
        now = "nothing is changed now" if answer.replay else free
        before = " before under this id" if answer.replay else ""
        said = f"{word}{before}: {answer.units} {plural(answer.units, 'unit')}, {now}"
    elif isinstance(answer, TooFew):
        found = {"answer": "too_few"} | asdict(answer)
        said = f"only {answer.available} {plural(answer.available, 'unit', 'is')} free, not {units}: nothing is changed"
    else:
        found = {"answer": "closed", "change_id": answer.order_id, "units": units}
        said = "the pool is closed: nothing is changed"
    is_told = _write(json_file, found, said)
    if not isinstance(answer, Restocked):
        tell(said)
        raise typer.Exit(EXIT_REFUSED)
    if not is_told:
        typer.echo(said)
