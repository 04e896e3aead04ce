"""The steps of archiving a pool, as a plan."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from segmented import protocol as op
from segmented.errors import InvalidInput, PoolArchived, SegmentedError, StoreRefused
from segmented.models.pools import ENTRIES_AT_ONCE, RECORD_KEYS, REMOVED_AT_ONCE, Archived, Archiving, PoolKey
from segmented.models.shards import Shard
from segmented.plans import Plan, perform
from segmented.stock.archiving.checking import CheckedArchive, check_archive
from segmented.stock.audit import audit_plan
from segmented.stock.plans import expire_plan
from segmented.stock.sharded.audit import sharded_audit_plan
from segmented.stock.sharded.opening import COPIES, first_copy_plan

if TYPE_CHECKING:
    from segmented.models import PoolState, ShardDirectory
    from segmented.stock.archiving.file import FileArchive

FORMAT: Final = 1


class LineWriter:
    """Writes lines, counts them and their orders, and computes their digest. Lines are ASCII."""

    def __init__(self, write: Callable[[str], None]) -> None:
        """Create a writer that calls `write` with each line."""
        self._write = write
        self._digest = hashlib.sha256()
        self.line_count = 0
        self.order_count = 0

    def head(self, about: Mapping[str, Any]) -> None:
        """Write the first line: what the archive is."""
        self._line({"record": "archive", "format": FORMAT} | dict(about))

    def record(self, kind: str, name: str, value: object, shard: int | None) -> None:
        """Write one record of a pool or of a shard."""
        self.order_count += kind == "orders"
        self._line({"record": kind} | ({} if shard is None else {"shard": shard}) | {"name": name, "value": value})

    def end(self) -> None:
        """Write the last line: what was written before it."""
        about = {"lines": self.line_count, "orders": self.order_count, "sha256": self._digest.hexdigest()}
        self._line({"record": "end"} | about)

    def _line(self, content: Mapping[str, Any]) -> None:
        line = json.dumps(content, separators=(",", ":"))
        self._digest.update(line.encode() + b"\n")
        self.line_count += 1
        self._write(line)


NOTE_MS: Final = 30 * 24 * 3_600_000
"""How long the note of an archived pool stays."""
ENTRIES_READ: Final = 32
"""Entries of the ledger that are read at once: each may have a thousand lines of 250 bytes."""
EXPIRED_MAX: Final = 1_000_000

Progress = Callable[[str, int, int], None]
"""Gets the name of the step, how many records it has done, and about how many there are."""


def no_progress(_step: str, _done: int, _total: int) -> None:
    """Show nothing."""


@dataclass(slots=True)
class _Source:
    """The pool, in shards or not."""

    sku: str
    directory: ShardDirectory | None
    pools: tuple[str, ...]
    standing: dict[str, Archiving | PoolArchived]

    @property
    def epoch(self) -> int:
        """The epoch under which the archive is kept."""
        return self.directory.epoch if self.directory else self.standing[self.sku].epoch

    def number(self, name: str) -> int | None:
        return name.number if isinstance(name, Shard) else None

    def digests(self) -> dict[str, str]:
        """Return the digests of complete archives, with their places."""
        return {one.digest: one.target for one in self.standing.values() if one.digest}

    def removed(self) -> list[str]:
        return [name for name, one in self.standing.items() if isinstance(one, PoolArchived)]


def archive_plan(sku: str, target: FileArchive, on_progress: Progress) -> Plan[Archived]:
    """Archive a pool, or finish what another run has begun."""
    source = yield from _begun_plan(sku)
    if not source.digests():
        try:
            checked = yield from _exported_plan(source, target, on_progress)
        except BaseException as error:
            if not isinstance(error, GeneratorExit):
                yield from _abandon_plan(source)
            raise
    else:
        checked = _complete_before(source, target)
    yield from _complete_plan(source, checked, target)
    is_replay = len(source.removed()) == len(source.pools) and (
        source.directory is None or source.directory.is_archived
    )
    total, done = checked.lines, 0
    for name in source.pools:
        if name not in source.removed():
            done = yield from remove_plan(name, done, total, on_progress)
    yield from note_directory_plan(source.directory)
    return Archived(
        sku, target.name, checked.digest, checked.lines, checked.orders, gated=checked.gated, replay=is_replay
    )


# --- beginning ---


def _begun_plan(sku: str) -> Plan[_Source]:
    """Let the pool answer reads alone; in shards each of them, or none."""
    directory = yield from first_copy_plan(sku, lambda found, has_failed: found is not None or not has_failed)
    pools: tuple[str, ...] = (sku,) if directory is None else directory.shards
    source = _Source(sku, directory, pools, {})
    try:
        for name in pools:
            try:
                state = yield from perform(op.ReadPool(name))
                if state.is_closed and not state.gated:
                    yield from expire_plan(name, EXPIRED_MAX)
            except PoolArchived:
                pass  # the next step says how far it is
            try:
                source.standing[name] = yield from perform(op.BeginArchive(name))
            except PoolArchived as error:
                source.standing[name] = error
    except SegmentedError:
        yield from _abandon_plan(source)
        raise
    return source


def _abandon_plan(source: _Source) -> Plan[None]:
    for name, one in source.standing.items():
        if not one.digest:
            with suppress(SegmentedError):  # it stays closed, and the next run begins again
                yield from perform(op.AbandonArchive(name))


def _complete_before(source: _Source, target: FileArchive) -> CheckedArchive:
    """Find the complete archive that the pool names. Raises InvalidInput if it is not at the target."""
    (digest, place), *_ = source.digests().items()
    checked = None
    if target.exists():
        with suppress(InvalidInput):
            checked = check_archive(target.lines(), target.name)
    if checked is None or checked.digest != digest:
        raise InvalidInput(
            f"pool {source.sku!r} was archived to {place}, and its complete archive is not at {target.name}: name the "
            "place where it is now"
        )
    return checked


# --- writing ---


def _exported_plan(source: _Source, target: FileArchive, on_progress: Progress) -> Plan[CheckedArchive]:
    """Write the archive, and check what is there now; an archive of the same state is not written again."""
    epoch = source.epoch
    is_there = target.exists()
    if not is_there:
        target.check()
    states = yield from _audited_plan(source, on_progress)
    about: list[dict[str, Any]] = []
    for name, state in zip(source.pools, states, strict=True):
        about.append((yield from _about_plan(name, state)))
    head = {"sku": source.sku, "epoch": epoch, "gated": states[0].gated, "is_sharded": source.directory is not None}
    if source.directory is not None:
        head["directory"] = source.directory.content
    if not is_there:
        total = sum(state.order_count + state.sequence for state in states)
        with target.writing() as write:
            writer = LineWriter(write)
            writer.head(head | {"pools": about})
            for name in source.pools:
                yield from _records_plan(source, name, writer, total, on_progress)
            writer.end()
    try:
        checked = check_archive(target.lines(), target.name)
    except InvalidInput as error:
        if not is_there:
            raise
        raise InvalidInput(f"{error}; it was there before, so it is not overwritten: name another place") from error
    if (checked.sku, checked.epoch, list(checked.pools)) != (source.sku, epoch, about):
        raise InvalidInput(f"{target.name} has the archive of another pool, or of another state: name another place")
    return checked


def _audited_plan(source: _Source, on_progress: Progress) -> Plan[list[PoolState]]:
    on_progress("checking", 0, 0)
    if source.directory is not None:
        sharded = yield from sharded_audit_plan(source.directory)
        states, is_clean = [report.state for report in sharded.shards], sharded.is_clean
    else:
        report, _ = yield from audit_plan(source.sku)
        states, is_clean = [report.state], report.is_clean
    if not is_clean:
        raise InvalidInput(
            f"pool {source.sku!r} is not archived, because its numbers do not follow from its ledger: see 'segmented "
            f"pool audit {source.sku}', and mend it with 'segmented pool repair {source.sku}'"
        )
    return states


def _about_plan(name: str, state: PoolState) -> Plan[dict[str, Any]]:
    """Return what the first line says of a pool or of a shard."""
    meta = dict((yield from _scanned_plan(name, "meta")))
    about: dict[str, Any] = {"epoch": state.epoch, "sequence": state.sequence, "chain": meta.get("chain", "")}
    return about | {"orders": state.order_count}


def _scanned_plan(name: str, key: PoolKey) -> Plan[list[tuple[str, str]]]:
    """Read all records of a small key."""
    records: list[tuple[str, str]] = []
    cursor = 0
    while True:
        cursor, page = yield from perform(op.ScanRecords(name, key, cursor))
        records += page
        if cursor == 0:
            return records


def _records_plan(source: _Source, name: str, writer: LineWriter, total: int, on_progress: Progress) -> Plan[None]:
    """Write all records of a pool or of a shard, page by page."""
    shard = source.number(name)
    for key in ("meta", *RECORD_KEYS):
        cursor = 0
        while True:
            cursor, page = yield from perform(op.ScanRecords(name, key, cursor))
            for record_name, value in page:
                if key != "meta" and not record_name.isprintable() and not _is_text(record_name):
                    message = f"the key '{key}' of pool {source.sku!r} has a name that is not text: remove it by hand"
                    raise InvalidInput(message)
                if key != "meta" or record_name != "archive":  # it says where this archive is
                    writer.record(key, record_name, value, shard)
            on_progress("writing", min(writer.line_count, total), total)
            if cursor == 0:
                break
    after = "0-0"
    while entries := (yield from perform(op.ScanLedger(name, after, ENTRIES_READ))):
        for entry_id, fields in entries:
            writer.record("ledger", entry_id, dict(fields), shard)
        after = entries[-1][0]
        on_progress("writing", min(writer.line_count, total), total)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


# --- removing ---


def _complete_plan(source: _Source, checked: CheckedArchive, target: FileArchive) -> Plan[None]:
    """Note in the pool, or in every shard, that its archive is complete, before the first record is removed."""
    for name, one in source.standing.items():
        if isinstance(one, PoolArchived) and one.is_removed:
            continue
        found = yield from perform(op.CompleteExport(name, checked.digest, target.name))
        if found.digest != checked.digest:
            raise StoreRefused(f"another run archives pool {source.sku!r} to {found.target}: let it finish")


def remove_plan(name: str, done: int, total: int, on_progress: Progress) -> Plan[int]:
    """Remove all records of a pool or of a shard, a bounded number in one step, and then the pool."""
    for key in RECORD_KEYS:
        cursor = 0
        while True:
            cursor, page = yield from perform(op.ScanRecords(name, key, cursor))
            names = tuple(record_name for record_name, _ in page)
            for first in range(0, len(names), REMOVED_AT_ONCE):
                yield from perform(op.RemoveRecords(name, key, names[first : first + REMOVED_AT_ONCE]))
            done += len(names)
            on_progress("removing", min(done, total), total)
            if cursor == 0 and not names:
                break
    while (yield from perform(op.RemoveRecords(name, "ledger"))) > 0:
        done += ENTRIES_AT_ONCE
        on_progress("removing", min(done, total), total)
    yield from perform(op.DropPool(name))
    yield from perform(op.RemovePool(name, NOTE_MS))
    return done


def note_directory_plan(directory: ShardDirectory | None) -> Plan[None]:
    """Note in all copies of a directory that its shards are removed, the first one last, because it is read first."""
    if directory is not None:
        for copy in reversed(range(COPIES)):
            yield from perform(op.ArchiveDirectory(directory, copy, NOTE_MS))
