"""Ledgers made by hand, for tests that fold them."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

from segmented.ledger_lines import NO_DIGEST, digest
from segmented.models import EntryKind, LedgerEntry, Part


def entry(sequence: int, kind: EntryKind, order_id: str | None, quantity: int, *parts: Part) -> LedgerEntry:
    """One change, without a segment of its own."""
    return LedgerEntry(1, sequence, kind, sequence * 1_000, order_id, quantity, parts, None, None)


def opened(stock: int, segments: int) -> LedgerEntry:
    """The first entry of a pool."""
    shares = ((segment, stock // segments + (segment < stock % segments)) for segment in range(segments))
    parts = [(segment, share) for segment, share in shares if share]
    return replace(entry(1, "opened", None, stock, *parts), note=str(segments))


def chained(entries: Iterable[LedgerEntry]) -> list[LedgerEntry]:
    """Give each entry the digest that a pool would have given it."""
    chain, made = NO_DIGEST, list[LedgerEntry]()
    for _, group in groupby(entries, key=attrgetter("sequence")):
        step = list(group)
        chain = digest(chain, step)
        made += [replace(one, chain=chain) for one in step]
    return made
