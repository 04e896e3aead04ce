"""`segmented orders`: list and show submitted orders, replay dead ones, and migrate the order database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any, Final

import typer

from segmented import protocol as op
from segmented.cli import put_away
from segmented.cli.output import (
    DEFAULT_URL,
    DatabaseOption,
    JsonOption,
    Row,
    SkuArgument,
    UrlOption,
    YesOption,
    print_table,
    require_somebody,
    shown,
    span,
    write_json,
)
from segmented.errors import InvalidInput, OrderUnknown
from segmented.files import STDOUT
from segmented.models import Settled, checked_id
from segmented.models.ids import counted
from segmented.models.submitted import SUBMITTED_UNTIL_MS, KeptMessage, Submitted
from segmented.plans import run_sync
from segmented.stock.dead_letters import (
    QUEUE,
    DeadLetter,
    Place,
    PlacedOrder,
    PlacedOutbox,
    ReplayedOrder,
    dead_letters_plan,
    message_of,
    order_plan,
    outboxes_plan,
    pages,
    replay_plan,
)
from segmented.stores.redis import RedisStore

EXIT_REFUSED: Final = 1
QUEUE_BYTES_MAX: Final = 200

orders = typer.Typer(
    no_args_is_help=True, help="Inspect submitted orders; replay dead ones; migrate the order database."
)

QueueOption = Annotated[
    str,
    typer.Option(
        metavar="QUEUE",
        envvar="SEGMENTED_QUEUE",
        callback=lambda queue: checked_id(queue, "queue", bytes_max=QUEUE_BYTES_MAX),
        help="Celery queue of the workers that kept the messages.",
    ),
]
DigestArgument = Annotated[
    str, typer.Argument(metavar="DIGEST", help="Message id as `dead` shows it, or its first characters.")
]


@orders.command("list")
def list_outboxes(
    skus: Annotated[
        list[str] | None,
        typer.Argument(metavar="SKU", help="Pools to list. [default: every pool with submitted orders]"),
    ] = None,
    *,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """List the undecided orders of each pool: waiting, due to be republished, and dead.

    An accepted order waits until it is decided. Orders that stay due mean that no sweep is running. A sharded pool has
    one row per shard.
    """
    with RedisStore.from_url(url) as store:
        found = run_sync(outboxes_plan(skus or ()), store)
    if write_json(json_file, {"pools": [_outbox_json(one) for one in found]}):
        return
    print_table(OUTBOX_HEADS, [_outbox_row(one) for one in found])
    if not found:
        typer.echo("no order was submitted to any pool", err=True)


@orders.command()
def show(
    sku: SkuArgument,
    order_id: Annotated[str, typer.Argument(metavar="ORDER_ID", help="Order id.")],
    *,
    database: DatabaseOption = None,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Show everything known about an order: state, units, current worker, and the last reason for a delay.

    With the order database also why a step has declined it. Exit code 1 if the pool has no record of it, for example
    because it was refused when it was submitted.
    """
    with RedisStore.from_url(url) as store:
        found = run_sync(order_plan(sku, order_id), store)
    if not found:
        raise OrderUnknown(order_id)
    why = None if database is None else _declined_for(database, sku, order_id)
    if why is not None:
        found = [replace(one, found=replace(one.found, reason=why)) for one in found]
    if write_json(json_file, {"found": [_order_json(one) for one in found]}):
        return
    for number, one in enumerate(found):
        if number:
            typer.echo()
        print_table(("", ""), _order_rows(one))


@orders.command()
def dead(
    sku: Annotated[
        str | None, typer.Argument(metavar="SKU", help="Pool whose dead orders are listed. [default: all]")
    ] = None,
    *,
    queue: QueueOption = QUEUE,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """List dead orders, which were started too often without finishing, and messages that no worker can read.

    A dead order keeps its units until its hold expires; then they are free again, unless the order was replayed.
    """
    with RedisStore.from_url(url) as store:
        letters = run_sync(dead_letters_plan(sku), store)
        messages = store.execute(op.ListMessages(queue))
    content = {"orders": [_dead_json(one) for one in letters], "queue": queue}
    if not write_json(json_file, content | {"messages": [asdict(one) for one in messages]}):
        _print_dead(letters, messages, queue)


@orders.command()
def replay(  # an option each
    sku: SkuArgument,
    order_ids: Annotated[
        list[str] | None, typer.Argument(metavar="ORDER_ID", help="Dead orders, by id as `dead` shows them.")
    ] = None,
    *,
    all_orders: Annotated[
        bool, typer.Option("--all", help="Every dead order. Asks for confirmation unless --yes.")
    ] = False,
    url: UrlOption = DEFAULT_URL,
    yes: YesOption = False,
    json_file: JsonOption = None,
) -> None:
    """Move orders out of the dead-letter set; the next sweep publishes them as new.

    Orders decided in the meantime are reported and only leave the set. Exit code 1 if an order is not in the set.
    """
    ids = [checked_id(order_id, "order id") for order_id in order_ids or []]
    if all_orders == bool(ids):
        raise InvalidInput("replay needs either ids of orders, or --all")
    is_asked = all_orders and require_somebody("replay --all", yes=yes)
    with RedisStore.from_url(url) as store:
        if all_orders:
            ids = list(dict.fromkeys(one.dead.order_id for one in run_sync(dead_letters_plan(sku), store)))
        if is_asked and ids and not typer.confirm(f"Publish {counted(len(ids), 'order')} of {shown(sku)} again?"):
            raise typer.Exit(EXIT_REFUSED)
        done: list[ReplayedOrder] = []
        for page in pages(list(dict.fromkeys(ids))):
            answers = run_sync(replay_plan(sku, page), store)
            done += answers
            if json_file != STDOUT:  # page by page: prints completed replays even if the server fails at the next page
                print_table(REPLAY_HEADS, [(_name(one), _replay_words(one)) for one in answers])
    write_json(json_file, {"sku": sku, "orders": [_replay_json(one) for one in done]})
    if json_file != STDOUT and not ids:
        typer.echo(f"no dead orders of {shown(sku)}")
    if any(one.answer is None for one in done):
        raise typer.Exit(EXIT_REFUSED)


@orders.command("show-message")
def show_message(
    digest: DigestArgument, *, queue: QueueOption = QUEUE, url: UrlOption = DEFAULT_URL, json_file: JsonOption = None
) -> None:
    """Print the stored text of a message that no worker could read.

    Lines with terminal control characters are quoted; --json has the unchanged text.
    """
    with RedisStore.from_url(url) as store:
        message = message_of(store.execute(op.ListMessages(queue)), digest, queue)
    if not write_json(json_file, {"queue": queue} | asdict(message)):
        for line in message.text.split("\n"):
            typer.echo(shown(line))


@orders.command("forget-message")
def forget_message(
    digests: Annotated[
        list[str], typer.Argument(metavar="DIGEST", help="Message ids as `dead` shows them, or their first characters.")
    ],
    *,
    queue: QueueOption = QUEUE,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Delete messages that no worker could read. Submitted orders are not lost: the outbox has them.

    Deletes nothing if one of the digests matches no message, or several.
    """
    with RedisStore.from_url(url) as store:
        messages = store.execute(op.ListMessages(queue))
        named = dict.fromkeys(message_of(messages, digest, queue).digest for digest in digests)
        forgotten = {digest: store.execute(op.DropMessage(queue, digest)) for digest in named}
    if write_json(json_file, {"queue": queue, "forgotten": [digest for digest, was in forgotten.items() if was]}):
        return
    for digest, was_there in forgotten.items():
        typer.echo(f"{shown(digest)}: {'forgotten' if was_there else 'forgotten meanwhile by somebody else'}")


@orders.command()
def migrate(*, database: DatabaseOption = None, json_file: JsonOption = None) -> None:
    """Bring the tables of the order database to the version that this release needs, or create them.

    Upgrade all processes afterwards: a release refuses tables of another version. Safe to run twice, and concurrently.
    """
    if database is None:
        raise InvalidInput("migrate needs --database URL: the order database whose tables are brought up to date")
    from segmented.orders import connect, migrate as migrate_tables  # noqa: PLC0415  # SQLAlchemy, for those who need it

    engine = connect(database, pool_size=1)
    try:
        done = migrate_tables(engine)
    finally:
        engine.dispose()
    if not write_json(json_file, {"before": done.before, "after": done.after, "is_changed": not done.replay}):
        change = f"created at {done.after}" if done.before is None else f"migrated from {done.before} to {done.after}"
        typer.echo(f"tables at revision {done.after} before: nothing is changed" if done.replay else f"tables {change}")


orders.command()(put_away.prune)
orders.command()(put_away.erase)


def _name(one: ReplayedOrder) -> str:
    where = "" if one.place.shard is None else f" ({_place_name(one.place)})"
    return f"{shown(one.order_id)}{where}"


def _replay_words(one: ReplayedOrder) -> str:
    if isinstance(one.answer, Settled):
        return f"decided in the meantime, so only removed from the set: {one.answer.state}"
    return "not in the dead-letter set" if one.answer is None else "published again by the next sweep"


def _print_dead(letters: Sequence[DeadLetter], messages: Sequence[KeptMessage], queue: str) -> None:
    if letters:
        print_table(DEAD_HEADS, [_dead_row(one) for one in letters])
    else:
        typer.echo("no dead orders")
    typer.echo()
    if messages:
        print_table(MESSAGE_HEADS, [_message_row(one) for one in messages])
    else:
        typer.echo(f"no kept messages of queue {shown(queue)}")
    holding = [one.units_on_hold for one in letters if one.units_on_hold]
    if holding:
        what = f"{counted(len(holding), 'dead order', 'keeps')}"
        typer.echo(f"{what} {counted(sum(holding), 'unit')} from other buyers until the holds lapse", err=True)


def _declined_for(database: str, sku: str, order_id: str) -> str | None:
    """Return why a step has declined an order, as its row says."""
    from segmented.orders import Gate, connect  # noqa: PLC0415  # SQLAlchemy, for those who need it

    with Gate(connect(database, pool_size=1)) as gate:
        rows = [gate.orders(name, (order_id,)).get(order_id) for name in gate.names_of(sku)]
    return next((row.reason for row in rows if row is not None and row.reason is not None), None)


OUTBOX_HEADS: Final = ("pool", "waiting", "due", "oldest due for", "dead")
DEAD_HEADS: Final = ("pool", "order", "begun", "age", "state now", "reason")
MESSAGE_HEADS: Final = ("message", "age", "reason", "text")
REPLAY_HEADS: Final = ("order", "outcome")
WORKER_SHOWN: Final = 8
DIGEST_SHOWN: Final = 12
TEXT_SHOWN: Final = 40
DECIDED: Final = {
    "confirmed": "confirmed: its units are sold",
    "cancelled": "cancelled: its units were given back",
    "expired": "expired: its hold lapsed, and its units were given back",
    "refused": "refused",
}


def _place_name(place: Place) -> str:
    return shown(place.sku) if place.shard is None else f"{shown(place.sku)}, shard {place.shard}"


def _lasting(milliseconds: int) -> str:
    return span(milliseconds / 1000)


# --- a pool's outbox ---


def _outbox_row(one: PlacedOutbox) -> Row:
    name, state = _place_name(one.place), one.state
    if state is None:
        return (name, "not open", "-", "-", "-")
    oldest = _lasting(state.oldest_due_ms) if state.due else "-"
    return (name, str(state.waiting), str(state.due), oldest, str(state.dead))


def _outbox_json(one: PlacedOutbox) -> dict[str, Any]:
    return asdict(one.place) | {"is_open": one.state is not None} | (asdict(one.state) if one.state else {})


# --- an order ---


def _state_in_words(found: Submitted) -> str:
    is_dead = found.dead_at_ms is not None
    if found.state == "dead":
        return "dead: not published to workers until it is replayed"
    if found.state in DECIDED:
        return DECIDED[found.state] + (", though it was dead before" if is_dead else "")
    if found.state == "queued":
        return "queued: accepted; a worker will take its units"
    waits = "a worker is to confirm it" if found.is_in_outbox else "it was not submitted to a worker"
    return f"reserved: its units are taken, and {waits}"


def _order_rows(one: PlacedOrder) -> list[Row]:
    found = one.found
    rows: list[Row] = [
        ("order", shown(found.order_id)),
        ("pool", _place_name(one.place)),
        ("state", _state_in_words(found)),
        ("units", _units(found)),
        ("customer", _customer(found)),
        ("begun", counted(found.begun, "time")),
        ("published again", counted(found.published, "time")),
        ("in hand", _in_hand(found)),
        ("next", _next(found)),
        ("reason", shown(found.reason) or "-"),
    ]
    if found.dead_at_ms is not None:
        rows.insert(3, ("dead for", _lasting(found.read_at_ms - found.dead_at_ms)))
    return rows


def _units(found: Submitted) -> str:
    record = found.record
    if record is None:
        return "none taken" if found.order is None else f"none taken, {found.order.quantity} asked for"
    if record.state == "refused":
        return f"none taken, {record.asked} asked for"
    if record.state in {"cancelled", "expired"}:
        return f"{record.quantity} given back"
    asked = f" of {record.asked} asked for" if record.asked != record.quantity else ""
    places = ", ".join(f"{taken} from segment {segment}" for segment, taken in record.parts)
    is_held = record.state == "reserved"
    return f"{record.quantity}{asked}{f' ({places})' if places else ''}{_hold(found) if is_held else ''}"


def _hold(found: Submitted) -> str:
    until_ms = found.record.hold_until_ms if found.record is not None else None
    if until_ms is None or until_ms >= SUBMITTED_UNTIL_MS:
        return ", on hold without an end"
    left = until_ms - found.read_at_ms
    return f", on hold for {_lasting(left)}" if left > 0 else ", on hold still, though their hold has lapsed"


def _customer(found: Submitted) -> str:
    asked_by = found.record.customer_id if found.record is not None else found.order and found.order.customer_id
    return shown(asked_by) if asked_by else "-"


def _in_hand(found: Submitted) -> str:
    left, record = found.until_ms - found.read_at_ms, found.record
    if found.worker and left > 0:
        return f"worker {shown(found.worker[:WORKER_SHOWN])}, for {_lasting(left)} unless it renews"
    is_granted = record is not None and record.state == "reserved" and record.holder_id and record.fencing_token
    if record is None or not is_granted or found.is_in_outbox or found.dead_at_ms is not None:
        return "nobody has it"
    holder = shown((record.holder_id or "")[:WORKER_SHOWN])
    return f"holder {holder} was granted segment {record.segment}: 'segmented lock list' says how long it has it"


def _next(found: Submitted) -> str:
    if found.due_ms is None:
        return "nothing: it is not in the outbox"
    left = found.due_ms - found.read_at_ms
    return f"published again in {_lasting(left)}" if left > 0 else f"due to be published again for {_lasting(-left)}"


def _order_json(one: PlacedOrder) -> dict[str, Any]:
    found = asdict(one.found)
    found["worker_start"] = found.pop("worker")[:WORKER_SHOWN]
    if found["record"] is not None:
        found["record"]["holder_id_start"] = (found["record"].pop("holder_id") or "")[:WORKER_SHOWN]
    return asdict(one.place) | found


# --- the dead-letter set ---


def _dead_row(letter: DeadLetter) -> Row:
    dead = letter.dead
    who = (_place_name(letter.place), shown(dead.order_id), str(dead.begun), _lasting(letter.age_ms))
    return (*who, _now(letter), shown(dead.reason) or "-")


def _now(letter: DeadLetter) -> str:
    found = letter.found
    if found.state in DECIDED:
        return f"{found.state} by now"
    if not letter.units_on_hold:
        return _units(found)
    return f"{counted(letter.units_on_hold, 'unit')}{_hold(found)}"


def _dead_json(letter: DeadLetter) -> dict[str, Any]:
    more = {"age_ms": letter.age_ms, "state": letter.found.state, "units_on_hold": letter.units_on_hold}
    return asdict(letter.place) | asdict(letter.dead) | more


def _message_row(message: KeptMessage) -> Row:
    begins = " ".join(message.text.split())
    cut = begins if len(begins) <= TEXT_SHOWN else f"{begins[:TEXT_SHOWN]}..."
    return (shown(message.digest[:DIGEST_SHOWN]), _lasting(message.age_ms), shown(message.reason), shown(cut))


def _replay_json(one: ReplayedOrder) -> dict[str, Any]:
    state = one.answer.state if isinstance(one.answer, Settled) else None
    answer = "absent" if one.answer is None else "replayed" if state is None else "decided"
    return {"order_id": one.order_id, "shard": one.place.shard, "answer": answer, "state": state}
