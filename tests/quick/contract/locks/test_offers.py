"""A lock that cannot offer a property says so in its type: it has no attribute or argument for it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

import pytest

from bench.proof.peers.locks.contender import WHY_NOT, NotOffered
from tests.support.contract.locks.contenders import elsewhere, ours
from tests.support.contract.locks.lab import Lab
from tests.support.contract.locks.rows import all_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.locks import AsyncGetSetLease, GetSetLease
    from segmented.locks.quorum import AsyncQuorumLease, QuorumLease
    from segmented.locks.sql_row import HeldRow

ON_REDIS: Final = [name for name in ours.CONTENDERS if "-redis-" in name]


def has(*attributes: str) -> Callable[[Any, Any], bool]:
    return lambda _, lease: any(hasattr(type(lease), name) or name in vars(lease) for name in attributes)


BY_TYPE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "fencing": has("fencing_token", "fencing_tokens"),
    "renewal": has("renew"),
    "telling": has("lost"),
    "with": has("__enter__", "__aenter__"),
    "reentrant": lambda handle, _: "owner" in inspect.signature(handle.acquire).parameters,
}
"""Offer -> does the type of the handle, or of its lease, have what belongs to it?"""
BY_ARGUMENT: Final = {"background": {"ttl": 5, "renew": True}, "replicas": {"replicas": 1}}
"""Offer -> arguments that only a constructor takes that offers it."""


@pytest.mark.parametrize("name", ON_REDIS)
def test_what_a_lock_offers_is_what_its_type_has(name: str, lab_urls: list[str]) -> None:
    contender = ours.make(name)
    with Lab(contender, lab_urls) as lab:
        handle, holder = lab.lock(), lab.caller()
        lease = holder.take(handle)
        by_type = {offer for offer, is_there in BY_TYPE.items() if is_there(handle, lease)}
        by_argument = {offer for offer, options in BY_ARGUMENT.items() if lab.can_make(contender.make_with, options)}
        holder.release(lease)
    assert by_type | by_argument == contender.offers & {*BY_TYPE, *BY_ARGUMENT}


@pytest.mark.parametrize("name", [name for name in ON_REDIS if "asyncio" in name])
def test_only_what_a_task_waits_for_can_be_cancelled(name: str) -> None:
    assert "cancelling" in ours.make(name).offers
    assert "cancelling" not in ours.make(name.replace("asyncio-redis-resp3-text", "threads-redis-resp2")).offers


def test_every_offer_has_a_sentence_for_those_that_lack_it() -> None:
    needed = {offer for row in all_rows() for offer in row.needs}
    offered = {offer for name in ours.CONTENDERS for offer in ours.make(name).offers}
    elsewhere_offered = {offer for _, made in elsewhere.CONTENDERS.values() for offer in made("").offers}
    assert needed | offered | elsewhere_offered <= set(WHY_NOT)


def test_a_row_that_does_not_apply_says_why(lab_urls: list[str]) -> None:
    with (
        Lab(ours.make("GetSetLock (historical)-threads-redis-resp2"), lab_urls) as lab,
        pytest.raises(NotOffered, match=r"^its leases carry no fencing token$"),
    ):
        lab.require("ttl", "fencing")


def what_type_checkers_refuse(
    quorum: QuorumLease, async_quorum: AsyncQuorumLease, old: GetSetLease, async_old: AsyncGetSetLease, row: HeldRow
) -> None:
    """Never called: mypy warns of an ignore that it does not need, so each line says that the attribute is missing."""
    _ = quorum.fencing_token  # type: ignore[attr-defined]  # no single server orders the grants
    _ = async_quorum.fencing_token  # type: ignore[attr-defined]  # as above
    _ = old.fencing_token  # type: ignore[attr-defined]  # it is the historical algorithm, which had none
    _ = async_old.fencing_token  # type: ignore[attr-defined]  # as above
    _ = old.renew  # type: ignore[attr-defined]  # as above
    _ = old.lost  # type: ignore[attr-defined]  # as above
    _ = row.release  # type: ignore[attr-defined]  # its transaction ends it
    _ = row.renew  # type: ignore[attr-defined]  # as above
