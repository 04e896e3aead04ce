"""The end of reservations over the wire: confirmed, cancelled, expired. The Lua files start with their contracts."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from segmented import protocol as op
from segmented.errors import EpochEnded, OrderQueued, OrderUnknown, PoolDrifted, PoolGated, SegmentedError
from segmented.models import OrderState, Settled, Superseded
from segmented.protocol.pool.orders_wire import lines_of, settled_line, woken_by
from segmented.protocol.pool.wire import keys_of, kind_of
from segmented.protocol.wire import Call, Codec, json_text, load_script, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.protocol.wire import Finish, Reply, Sight

EndingT = TypeVar("EndingT", op.Confirm, op.Cancel, op.SettleMany)
SETTLED: Final = frozenset({"settled", b"settled"})
"""The first word of the usual answer, as text and as bytes; `kind_of` reads the others."""


class _Copy:
    """A copy of a `Settled` under another order id, as in `orders_wire`."""

    __slots__ = tuple(one.name for one in fields(Settled))

    def __init__(self, order_id: str, like: Settled) -> None:
        self.order_id = order_id
        self.state = like.state
        self.quantity = like.quantity
        self.segment = like.segment
        self.fencing_token = like.fencing_token
        self.sequence = like.sequence
        self.replay = like.replay


def _encode_settle(operation: op.SettleMany) -> Call:
    flags = _flags(
        operation.epoch,
        decided=operation.decided,
        idle=operation.idle,
        unheard=operation.unheard,
        sold_before=operation.sold_before,
        quiet=operation.quiet,
    )
    worker = operation.assignment.texts if operation.idle else ()
    holder = () if operation.holder_id is None else (operation.holder_id,)
    ids = operation.order_ids
    listed = f"[{json_text(ids[0])}]" if len(ids) == 1 else json_text(ids)  # the encoder writes one text in a third
    arguments = (operation.state, flags, listed, *worker, *holder)
    return Call(load_script("settle"), keys_of(operation.sku), arguments)


def _flags(  # one letter each, by name
    epoch: int | None = None,
    *,
    decided: bool,
    idle: bool = False,
    unheard: bool = False,
    sold_before: bool = False,
    quiet: bool = False,
) -> str:
    stored = "" if not decided else "d" if epoch is None else f"d{epoch}"
    return stored + "i" * idle + "u" * unheard + "s" * sold_before + "q" * quiet or "0"


def _ended(
    sku: str, state: OrderState, order_ids: Sequence[str], reply: Reply
) -> list[Settled | Superseded | SegmentedError | None]:
    if reply[0] not in SETTLED:
        kind_of(sku, reply)
    sequence = int(reply[1])
    answers: list[Settled | Superseded | SegmentedError | None] = []
    done: dict[str, Settled] = {}  # most lines of a batch are the same few
    for order_id, line in zip(order_ids, lines_of(reply[2]), strict=False):  # maybe of the first orders only
        like = done.get(line)
        if like is not None:
            copy: Any = _Copy(order_id, like)
            copy.__class__ = Settled
            answers.append(copy)
            continue
        kind, *rest = line.split("\t")
        if kind != "done":
            answers.append(_not_ended(sku, state, order_id, kind, rest, int(reply[3])))
            continue
        quantity, segment, fence = (*rest, "")[:3]
        token = int(fence) if fence else None
        done[line] = like = Settled(order_id, state, int(quantity), int(segment), token, sequence, replay=False)
        answers.append(like)
    return answers


def _not_ended(
    sku: str, state: OrderState, order_id: str, kind: str, fields: Sequence[str], epoch: int
) -> Settled | Superseded | SegmentedError | None:
    match kind:
        case "settled":
            return settled_line(order_id, fields)
        case "superseded":
            return Superseded(order_id, int(fields[0]))
        case "unknown":
            return OrderUnknown(order_id)
        case "queued":
            return OrderQueued(order_id)
        case "gated":
            return PoolGated(sku, order_id, "store" if state == "confirmed" else "void")
        case "late":
            return EpochEnded(sku, epoch)
        case "drifted":
            return PoolDrifted(sku)
        case _:
            return None


def _decode_settle(operation: op.SettleMany, reply: Reply) -> tuple[Settled | SegmentedError | None, ...]:
    state: OrderState = "confirmed" if operation.sold_before else operation.state
    answers = _ended(operation.sku, state, operation.order_ids, reply)
    if operation.holder_id is None:  # without a holder no other one can have superseded it
        return tuple(answers)  # type: ignore[arg-type]  # as the script answers
    return tuple(None if isinstance(answer, Superseded) else answer for answer in answers)


def _has_several(operation: op.SettleMany) -> bool:
    """Return whether one step may be too short for it: each step ends its first order."""
    return len(operation.order_ids) > 1


def _settle_rest(operation: op.SettleMany, answers: tuple[Settled | SegmentedError | None, ...]) -> Finish:
    """End the orders that one step was too short for, because those before them have many parts."""
    while left := operation.order_ids[len(answers) :]:
        answers += yield replace(operation, order_ids=left)
    return answers


def _one(sku: str, state: OrderState, order_id: str, reply: Reply) -> Settled | Superseded | None:
    (answer,) = _ended(sku, state, (order_id,), reply)
    if isinstance(answer, SegmentedError):
        raise answer
    return answer


def _encode_confirm(operation: op.Confirm) -> Call:
    flags = _flags(operation.epoch, decided=operation.stored, quiet=operation.quiet)
    arguments = ("confirmed", flags, f"[{json_text(operation.order_id)}]", operation.holder_id or "")
    return Call(load_script("settle"), keys_of(operation.sku), arguments)


def _decode_confirm(operation: op.Confirm, reply: Reply) -> Settled:
    return _one(operation.sku, "confirmed", operation.order_id, reply)  # type: ignore[return-value]  # the script has no other answer


def _encode_cancel(operation: op.Cancel) -> Call:
    flags = _flags(decided=operation.voided, unheard=operation.unheard, quiet=operation.quiet)
    arguments = ("cancelled", flags, f"[{json_text(operation.order_id)}]", operation.holder_id or "")
    return Call(load_script("settle"), keys_of(operation.sku), arguments)


def _decode_cancel(operation: op.Cancel, reply: Reply) -> Settled | Superseded:
    return _one(operation.sku, "cancelled", operation.order_id, reply)  # type: ignore[return-value]  # the script has no other answer


def _encode_expire(operation: op.Expire) -> Call:
    arguments = ("expired", _flags(decided=operation.voided), f"[{json_text(operation.order_id)}]")
    return Call(load_script("settle"), keys_of(operation.sku), arguments)


def _decode_expire(operation: op.Expire, reply: Reply) -> Settled | None:
    return _one(operation.sku, "expired", operation.order_id, reply)  # type: ignore[return-value]  # the script has no other answer


def _encode_expire_due(operation: op.ExpireDue) -> Call:
    return Call(load_script("expire_due"), keys_of(operation.sku), (operation.limit,))


def _decode_expire_due(operation: op.ExpireDue, reply: Reply) -> tuple[tuple[Settled, ...], bool]:
    kind_of(operation.sku, reply)
    sequence, lines = text(reply[1]), text(reply[3])
    settled = []
    for line in lines.split("\n") if lines else ():
        order_id, quantity, segment, fence = (*line.split("\t"), "")[:4]
        settled.append(settled_line(order_id, ("e", quantity, segment, fence, sequence), replay=False))
    return tuple(settled), text(reply[2]) == "1"


# --- what an answer tells of the pool's progress ---


def _sight_of_ended(reply: Reply, _: object) -> Sight:
    return int(reply[3]), int(reply[1]), 0


def _sight_of_expired(reply: Reply, _: object) -> Sight:
    return int(reply[4]), int(reply[1]), 0


# --- waking ---


def _quietly(operation: EndingT) -> EndingT:
    return replace(operation, quiet=True)


# --- acknowledging ---


def _is_promised(operation: op.Confirm | op.Cancel, *, is_gated: bool) -> bool:
    """Return whether a caller relies on this answer: not if the order database has decided or the caller is gone."""
    if isinstance(operation, op.Confirm):
        return not (is_gated and operation.stored)
    return not (is_gated and operation.voided) and not operation.unheard


def _are_promised(operation: op.SettleMany, *, is_gated: bool) -> bool:
    """Return the same for many; an expired hold is told to nobody."""
    return operation.state != "expired" and not (is_gated and operation.decided) and not operation.unheard


CODECS: Final = {
    op.Confirm: Codec(
        _encode_confirm,
        _decode_confirm,
        wakes=woken_by,
        quietly=_quietly,
        acknowledges=_is_promised,
        sight=_sight_of_ended,
    ),
    op.Cancel: Codec(
        _encode_cancel,
        _decode_cancel,
        wakes=woken_by,
        quietly=_quietly,
        acknowledges=_is_promised,
        sight=_sight_of_ended,
    ),
    op.Expire: Codec(_encode_expire, _decode_expire, sight=_sight_of_ended),
    op.SettleMany: Codec(
        _encode_settle,
        _decode_settle,
        finish=_settle_rest,
        finishes=_has_several,
        wakes=woken_by,
        quietly=_quietly,
        acknowledges=_are_promised,
        sight=_sight_of_ended,
    ),
    op.ExpireDue: Codec(_encode_expire_due, _decode_expire_due, sight=_sight_of_expired),
}
