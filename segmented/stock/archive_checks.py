"""Check an archive from its lines alone. Shares nothing with the writer, so that the writer's errors are found.

1. The first line says what the archive is, the last line how many lines and orders it has, and their digest.
2. Each pool's numbers add up: stocked units are free or sold, and none is reserved.
3. Each pool has as many orders as its first line says, and they are the sold units.
4. Each pool's ledger is complete from where it begins, and each entry's digest follows from the one before.

Needs the same memory for any number of lines.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from segmented.errors import InvalidInput
from segmented.models.ids import counted

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class CheckedArchive:
    """An archive that is complete and adds up."""

    sku: str
    epoch: int
    lines: int
    digest: str
    orders: int
    confirmed: int
    """Units sold."""
    gated: bool
    pools: tuple[dict[str, Any], ...]
    """What the first line says of the pool, or of each shard."""


@dataclass(slots=True)
class _Pool:
    said: dict[str, Any]
    meta: dict[str, str] = field(default_factory=dict)
    orders: int = 0
    sold: int = 0
    free: int = 0
    last: int = 0
    """Sequence number of the last checked entry."""
    chain: str = ""


def check_archive(lines: Iterable[str], where: str) -> CheckedArchive:
    """Read all lines of an archive. Raises InvalidInput for one that is incomplete, damaged or does not add up."""
    digest, count, ended = hashlib.sha256(), 0, None
    head: dict[str, Any] = {}
    pools: list[_Pool] = []
    for line in lines:
        if ended is not None:
            raise _wrong(where, "it has lines after its end")
        found = _parsed(line, where, count)
        if count == 0:
            head = found
            pools = [_Pool(said) for said in _pools_of(head, where)]
        elif found.get("record") == "end":
            ended = found
            continue
        else:
            _take(pools, found, where, count)
        digest.update(line.encode() + b"\n")
        count += 1
    if ended is None:
        raise _wrong(where, "its end is missing")
    if (ended.get("lines"), ended.get("sha256")) != (count, digest.hexdigest()):
        raise _wrong(where, f"its end names {ended.get('lines')} lines of another content than these {count}")
    for pool in pools:
        _judge(pool, where)
    orders = sum(pool.orders for pool in pools)
    if ended.get("orders") != orders:
        raise _wrong(where, f"its end names {ended.get('orders')} orders, and it has {orders}")
    sold = sum(int(pool.meta["confirmed"]) for pool in pools)
    return CheckedArchive(
        sku=head["sku"],
        epoch=head["epoch"],
        lines=count,
        digest=digest.hexdigest(),
        orders=orders,
        confirmed=sold,
        gated=head.get("gated") is True,
        pools=tuple(pool.said for pool in pools),
    )


def _wrong(where: str, why: str) -> InvalidInput:
    return InvalidInput(f"{where} is not a complete archive: {why}")


def _parsed(line: str, where: str, number: int) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _wrong(where, f"line {number + 1} is not a JSON object")
    return found


def _pools_of(head: dict[str, Any], where: str) -> list[dict[str, Any]]:
    if head.get("record") != "archive":
        raise _wrong(where, "its first line does not say that it is one")
    if head.get("format") != FORMAT:
        raise _wrong(where, f"it has format {head.get('format')!r}, and this release reads format {FORMAT}")
    pools = head.get("pools")
    if not isinstance(head.get("sku"), str) or not isinstance(head.get("epoch"), int) or not isinstance(pools, list):
        raise _wrong(where, "its first line does not name the pool")
    return pools


def _take(pools: list[_Pool], found: dict[str, Any], where: str, number: int) -> None:
    try:
        kind, name, value = found["record"], found["name"], found["value"]
        pool = pools[found.get("shard", 0)]
        if kind == "meta":
            pool.meta[name] = value
        elif kind == "stock":
            pool.free += int(value)
        elif kind == "orders":
            state, quantity = value.split("\t")[:2]
            pool.orders += 1
            pool.sold += int(quantity) if state == "c" else 0
        elif kind == "ledger":
            _follow(pool, name, value)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        reason = error if isinstance(error, ValueError) else "it cannot be read"
        raise _wrong(where, f"line {number + 1}: {reason}") from error


def _follow(pool: _Pool, name: str, entry: dict[str, str]) -> None:
    """Check one entry of the ledger. Those before the checkpoint at which it begins were trimmed in part."""
    epoch, sequence = map(int, name.split("-"))
    first = int(pool.meta.get("ledger_start", "1"))
    if epoch != int(pool.meta["epoch"]) or sequence < first:
        return
    if sequence != (pool.last or first - 1) + 1:
        raise ValueError(f"the ledger has no entry {(pool.last or first - 1) + 1}")
    before = pool.chain
    if not pool.last:
        before = entry["lines"].rsplit(" ", 1)[1] if first > 1 else "0" * 16
    content = f"{before}\n{name}\n{entry['kind']}\n{entry['at_us']}\n{entry['lines']}".encode()
    pool.chain = hashlib.sha1(content, usedforsecurity=False).hexdigest()[:16]
    pool.last = sequence
    if pool.chain != entry["chain"]:
        raise ValueError(f"the digest of entry {name} of the ledger does not follow from the one before")


def _judge(pool: _Pool, where: str) -> None:
    said, meta = pool.said, pool.meta
    try:
        numbers = {name: int(meta.get(name, "0")) for name in ("restocked", "withdrawn", "sent", "received", "lost")}
        numbers |= {name: int(meta[name]) for name in ("opened", "available", "reserved", "confirmed", "sequence")}
    except (KeyError, ValueError) as error:
        raise _wrong(where, f"the pool's number {error} is missing or cannot be read") from error
    stocked = numbers["opened"] + numbers["restocked"] - numbers["withdrawn"] + numbers["received"] - numbers["sent"]
    orders, free, sold = counted(pool.orders, "order"), counted(pool.free, "unit", "is"), counted(pool.sold, "unit")
    reserved = counted(numbers["reserved"], "unit", "is")
    checks = (
        (pool.last == numbers["sequence"] == said.get("sequence"), "the ledger does not end where the pool does"),
        (pool.chain == meta.get("chain") == said.get("chain"), "the ledger's last digest is not the pool's"),
        (pool.orders == said.get("orders"), f"it has {orders}, and the pool had {said.get('orders')}"),
        (numbers["reserved"] == 0, f"{reserved} reserved"),
        (pool.free == numbers["available"], f"{free} free in segments, {numbers['available']} in all"),
        (stocked == numbers["available"] + numbers["confirmed"], "stocked units are not the free and the sold ones"),
        (pool.sold + numbers["lost"] == numbers["confirmed"], f"the orders sold {sold}, the pool others"),
    )
    for is_right, why in checks:
        if not is_right:
            raise _wrong(where, why)
