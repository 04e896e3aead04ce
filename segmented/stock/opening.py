"""Open a pool, once its server is known to keep to its profile."""

from __future__ import annotations

from dataclasses import dataclass

from segmented import protocol as op
from segmented.errors import ChangeGated, PoolDiffers, PoolMissing, ShardVanished
from segmented.models import AlreadyOpen, Opened, PoolState, ShardedState
from segmented.plans import Plan, perform


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The terms of an opening, as the caller named them. `stock` and `segments` are those of all `shards` together.

    `profile`, `queue` and `step` may be None: then a new pool has the default, and an open one keeps its own.
    """

    stock: int
    segments: int
    shards: int = 1
    gated: bool = False
    epoch: int = 1
    limit_per_customer: int | None = None
    profile: str | None = None
    queue: str | None = None
    step: str | None = None


def open_pool_plan(operation: op.OpenPool) -> Plan[Opened | AlreadyOpen]:
    """Open a pool, on a server that can keep to its profile. Raises ChangeGated if it is open, and gated unasked."""
    yield from check_profile_plan(operation)
    answer = yield from perform(operation)
    if isinstance(answer, AlreadyOpen) and answer.state.gated and not operation.gated:
        raise ChangeGated(operation.sku, "open")
    yield from perform(op.NotePool(operation.sku))
    return answer


def check_profile_plan(operation: op.OpenPool) -> Plan[None]:
    """Check the server of a pool that is not open yet. Raises InvalidInput.

    An open pool is not checked again: while a replica is missing, its orders are acknowledged later, not never.
    """
    profile = operation.profile
    if profile is None or not profile.waits:
        return
    try:
        yield from perform(op.ReadPool(operation.sku))
    except (PoolMissing, ShardVanished):
        yield from perform(op.CheckProfile(operation.sku, profile))


def opened_as_asked(answer: Opened | AlreadyOpen, asked: op.OpenPool, opening: Opening) -> Opened | AlreadyOpen:
    """Return the answer to an opening. Raises PoolDiffers for a pool that stands otherwise than `asked`, or is closed.

    A gated pool, or a shard of it, may be in a later epoch, in which it was rebuilt: it then has the numbers of its
    order database, and still the queue and the step that it names.
    """
    state = answer.state
    epoch = max(one.epoch for one in _parts(state))
    if isinstance(answer, AlreadyOpen):
        is_rebuilt = state.gated and epoch > asked.epoch and not state.is_closed
        differing = _other_workers(state, asked) if is_rebuilt else differences(state, asked, opening)
        if differing:
            raise PoolDiffers(asked.sku, differing)
    return answer


def differences(state: PoolState, asked: op.OpenPool, opening: Opening) -> list[str]:
    """Return what is not as asked, in words; what was not asked for of profile, queue and step is not compared."""
    shard_count = len(state.shards) if isinstance(state, ShardedState) else 1
    numbers = (
        ("state", state.condition, "open") if state.is_closed else ("", None, None),
        ("stock", state.opened, asked.stock),
        ("segments", state.segment_count, asked.segment_count),
        ("limit per customer", state.limit_per_customer, asked.limit_per_customer),
        ("gated", state.gated, asked.gated),
        ("epoch", state.epoch, asked.epoch),
        ("shards", shard_count, opening.shards),
        ("profile", state.profile, state.profile if opening.profile is None else str(asked.profile)),
    )
    differing = [
        f"{name} {_said(found)} instead of {_said(wanted)}" for name, found, wanted in numbers if found != wanted
    ]
    return differing + _other_workers(state, asked)


def _other_workers(state: PoolState, asked: op.OpenPool) -> list[str]:
    """Return where a pool, or a shard of it, names another queue or step than those that were asked for."""
    wanted = asked.assignment
    found = [
        *(("queue", one.queue, wanted.queue) for one in _parts(state) if wanted.queue not in {None, one.queue}),
        *(("step", one.step, wanted.step) for one in _parts(state) if wanted.step not in {None, one.step}),
    ]
    return [f"{name} {_said(named)} instead of {_said(other)}" for name, named, other in dict.fromkeys(found)]


def _parts(state: PoolState) -> tuple[PoolState, ...]:
    return state.shards if isinstance(state, ShardedState) else (state,)


def _said(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
