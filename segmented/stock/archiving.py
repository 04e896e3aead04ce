"""Archive or delete a closed pool.

An archive has all records of the pool in a file. It is checked before the pool's keys are removed:

1. The pool answers reads alone from now on. It must be closed, with nothing left to decide.
2. It is audited, so that only a pool whose numbers follow from its ledger is archived.
3. All its records are written, then read back and checked by code that the writer does not use (`archive_checks`).
4. The pool notes that its archive is complete. An interruption before this note leaves a whole pool; after it, the next
   run finishes the removal.
5. Its keys are removed, a bounded number of records in one step. A note stays for 30 days, so that a process that knew
   the pool learns what became of it.

A deletion removes the keys in the same way, and the pool's entries in every index. An interrupted run leaves a whole
pool, or one that is being removed, which the next run finishes.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from segmented import protocol as op
from segmented.errors import InvalidInput, PoolArchived, PoolMissing, SegmentedError, ShardVanished, StoreRefused
from segmented.files import FILE_MODE, check_writable
from segmented.models.pools import ENTRIES_AT_ONCE, RECORD_KEYS, REMOVED_AT_ONCE, Archived, Archiving, Deleted, PoolKey
from segmented.models.shards import Shard
from segmented.models.submitted import encodable
from segmented.plans import Plan, perform, run_async, run_sync
from segmented.stock.archive_checks import CheckedArchive, check_archive
from segmented.stock.audit import audit_plan
from segmented.stock.plans import expire_plan
from segmented.stock.sharded.audit import sharded_audit_plan
from segmented.stock.sharded.opening import COPIES, first_copy_plan

if TYPE_CHECKING:
    from segmented.models import PoolState, ShardDirectory
    from segmented.stock.async_pool import AsyncPool
    from segmented.stock.pool import Pool
    from segmented.stock.sharded.async_pool import AsyncShardedPool
    from segmented.stock.sharded.pool import ShardedPool

FORMAT: Final = 1
NOTE_MS: Final = 30 * 24 * 3_600_000
"""How long the note of an archived pool stays."""
ENTRIES_READ: Final = 32
"""Entries of the ledger that are read at once: each may have a thousand lines of 250 bytes."""
EXPIRED_MAX: Final = 1_000_000
COMPRESSED: Final = ".gz"
LEVEL: Final = 6
BUFFER: Final = 1 << 20
BETWEEN: Final = re.compile(r'\\+[tn]|\\*"')
"""Separators of values in a line of an archive: tabs and line ends as JSON writes them, once or twice; and quotes."""

Progress = Callable[[str, int, int], None]
"""Gets the name of the step, how many records it has done, and about how many there are."""


def no_progress(_step: str, _done: int, _total: int) -> None:
    """Show nothing."""


async def async_archive(
    pool: AsyncPool | AsyncShardedPool, file: FileArchive | Path | str, *, on_progress: Progress = no_progress
) -> Archived:
    """Write a closed pool to a file, check what was written, and remove the pool's keys.

    Safe to repeat; an interrupted run is finished by the next one with the same file. One whose name ends with
    .gz is compressed. Rows of an order database stay: they are the truth of a gated pool. `on_progress` gets the step,
    how many records it has done, and how many there are. Raises InvalidInput, without changes, for a pool that is open
    or has something left to decide, for drift, and for a file that cannot be written or holds something else.
    An event loop waits while a page of records is written.
    """
    return await run_async(archive_plan(pool.sku, _file(file), on_progress), pool.store)


def _file(file: FileArchive | Path | str) -> FileArchive:
    return file if isinstance(file, FileArchive) else FileArchive(file)


async def async_delete(
    pool: AsyncPool | AsyncShardedPool,
    *,
    unfinished: bool = False,
    dry_run: bool = False,
    on_progress: Progress = no_progress,
) -> Deleted:
    """Remove all keys of a closed pool in which nothing is left to decide, and its entries in the workers' index.

    Nothing is kept, unlike with `archive`; rows of an order database stay. With `unfinished` the pool may be open,
    frozen, or have reserved units, submitted orders and carts, which are lost. With `dry_run` nothing changes. Safe to
    repeat; the next call finishes an interrupted one. Raises InvalidInput, without changes, for a pool that is not
    finished, and PoolMissing for one that is not there.
    """
    plan = delete_plan(pool.sku, unfinished=unfinished, dry_run=dry_run, on_progress=on_progress)
    return await run_async(plan, pool.store)


# --- the plan of an archive ---


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
    shard = name.number if isinstance(name, Shard) else None
    for key in ("meta", *RECORD_KEYS):
        cursor = 0
        while True:
            cursor, page = yield from perform(op.ScanRecords(name, key, cursor))
            for record_name, value in page:
                if key != "meta" and encodable(record_name) != record_name:
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


# --- the plan of a deletion ---


def delete_plan(sku: str, *, unfinished: bool, dry_run: bool, on_progress: Progress) -> Plan[Deleted]:
    """Delete a pool or all shards of one, or finish what another run has begun."""
    directory = yield from first_copy_plan(sku, lambda found, has_failed: found is not None or not has_failed)
    names: tuple[str, ...] = (sku,) if directory is None else directory.shards
    states, left = yield from _found_plan(names, unfinished=unfinished, may_expire=not (unfinished or dry_run))
    if not unfinished:
        for name in left:  # all of them before the first is removed: in a closed pool nothing new is to be decided
            yield from perform(op.BeginArchive(name, "check"))
    if not dry_run:
        for name in left:
            yield from perform(op.BeginArchive(name, "drop" if unfinished else "delete"))
        done, total = 0, sum(state.order_count + state.sequence for state in states.values())
        for name in left:
            done = yield from remove_plan(name, done, total, on_progress)
        for name in names:
            yield from perform(op.DropPool(name))  # a process that knew the pool may have entered it again
        yield from note_directory_plan(directory)
    return Deleted(
        sku,
        orders=sum(state.order_count for state in states.values()),
        entries=sum(state.sequence for state in states.values()),
        confirmed=sum(state.confirmed for state in states.values()),
        reserved=sum(state.reserved for state in states.values()),
        gated=any(state.gated for state in states.values()),
        replay=not left,
    )


def _found_plan(
    names: tuple[str, ...], *, unfinished: bool, may_expire: bool
) -> Plan[tuple[dict[str, PoolState], list[str]]]:
    """Return the numbers of the pool or its shards, and which of them are not removed yet."""
    states: dict[str, PoolState] = {}
    left: list[str] = []
    for name in names:
        try:
            states[name] = state = yield from perform(op.ReadPool(name))
            if state.is_closed and not state.gated and may_expire:
                yield from expire_plan(name, EXPIRED_MAX)
        except (PoolMissing, ShardVanished) as error:
            if isinstance(error, PoolArchived) and not error.is_removed:
                pass  # an interrupted run has begun
            elif isinstance(error, PoolArchived) or (unfinished and len(names) > 1):
                continue  # gone already
            else:
                raise
        left.append(name)
    return states, left


# --- the file: one JSON object per line, compressed if its name ends with .gz; complete or absent ---


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


class FileArchive:
    """One archive in one file. It appears under its name once it is complete."""

    def __init__(self, file: Path | str) -> None:
        """Archive to `file`; writes nothing. Raises InvalidInput for an empty name."""
        if not str(file).strip() or "\0" in str(file):
            raise InvalidInput(f"{str(file)!r} names no file")
        self._file = Path(file).absolute()
        self._beside = self._file.with_name(f".{self._file.name}.partial")
        self.name = str(self._file)
        """The place in words, as a later reader finds it."""

    def __repr__(self) -> str:
        return f"FileArchive({self.name!r})"

    def check(self) -> None:
        """Raise InvalidInput if the file cannot be written. Changes nothing."""
        check_writable(self._file, "the archive")
        if self._file.exists() and not self._file.is_file():
            raise InvalidInput(f"the archive {self._file} is a device or a pipe: name a file")

    def exists(self) -> bool:
        """Return whether the file is there."""
        return self._file.is_file()

    def lines(self) -> Iterator[str]:
        """Yield the lines that are there, without their ends."""
        return lines_of(self._file)

    @contextmanager
    def writing(self) -> Iterator[Callable[[str], None]]:
        """Write to a file beside it, which takes its name when the block ends. If the block fails, nothing is there."""
        try:
            with self._opened() as raw:
                try:
                    with _compressing(raw, self._file) as file:
                        yield lambda line: _write(file, line)
                    raw.flush()
                    os.fsync(raw.fileno())
                    self._beside.replace(self._file)
                except BaseException:
                    self._beside.unlink(missing_ok=True)
                    raise
            _sync_folder(self._file.parent)
        except OSError as error:
            raise InvalidInput(f"the archive {self._file} cannot be written: {error.strerror or error}") from error

    @contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        """Open the file beside it, alone; what a killed process left there is overwritten."""
        descriptor = os.open(self._beside, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), FILE_MODE)
        with os.fdopen(descriptor, "wb", buffering=BUFFER) as raw:
            with suppress(ImportError):  # Windows has none
                import fcntl  # noqa: PLC0415  # as above

                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise InvalidInput(f"another process is writing the archive {self._file}: let it finish") from None
                if not self._is_beside(descriptor):  # it was renamed before this process had its lock: it is complete
                    raise InvalidInput(f"another process has just written the archive {self._file}")
            os.ftruncate(descriptor, 0)
            yield raw

    def _is_beside(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self._beside.lstat())
        except FileNotFoundError:
            return False


def names_customer(line: str, customer_id: str) -> bool:
    """Return whether a line of an archive names a customer."""
    written = json.dumps(customer_id)[1:-1]
    return written in line and ("\\" in customer_id or '"' in customer_id or written in BETWEEN.split(line))


def lines_of(file: Path) -> Iterator[str]:
    """Yield the lines of a file. Raises InvalidInput if it cannot be read, is damaged or is not text."""
    try:
        with file.open("rb") as raw:
            opened = gzip.GzipFile(fileobj=raw) if file.name.endswith(COMPRESSED) else raw
            for line in opened:
                yield line.decode().removesuffix("\n")
    except (OSError, EOFError, gzip.zlib.error, UnicodeDecodeError) as error:  # type: ignore[attr-defined]  # of zlib
        raise InvalidInput(f"the archive {file} cannot be read: {getattr(error, 'strerror', None) or error}") from error


@contextmanager
def _compressing(raw: IO[bytes], file: Path) -> Iterator[IO[bytes]]:
    if not file.name.endswith(COMPRESSED):
        yield raw
        return
    with gzip.GzipFile(filename="", mode="wb", compresslevel=LEVEL, fileobj=raw, mtime=0) as compressed:
        yield compressed  # type: ignore[misc]  # it is a binary stream


def _write(file: IO[bytes], line: str) -> None:
    file.write(line.encode() + b"\n")


def _sync_folder(folder: Path) -> None:
    """Make the new name durable."""
    with suppress(OSError):  # some file systems cannot
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# --- For threads: written by `make sync` from the classes above. ---


def archive(
    pool: Pool | ShardedPool, file: FileArchive | Path | str, *, on_progress: Progress = no_progress
) -> Archived:
    """Write a closed pool to a file, check what was written, and remove the pool's keys.

    Safe to repeat; an interrupted run is finished by the next one with the same file. One whose name ends with
    .gz is compressed. Rows of an order database stay: they are the truth of a gated pool. `on_progress` gets the step,
    how many records it has done, and how many there are. Raises InvalidInput, without changes, for a pool that is open
    or has something left to decide, for drift, and for a file that cannot be written or holds something else.
    An event loop waits while a page of records is written.
    """
    return run_sync(archive_plan(pool.sku, _file(file), on_progress), pool.store)


def delete(
    pool: Pool | ShardedPool,
    *,
    unfinished: bool = False,
    dry_run: bool = False,
    on_progress: Progress = no_progress,
) -> Deleted:
    """Remove all keys of a closed pool in which nothing is left to decide, and its entries in the workers' index.

    Nothing is kept, unlike with `archive`; rows of an order database stay. With `unfinished` the pool may be open,
    frozen, or have reserved units, submitted orders and carts, which are lost. With `dry_run` nothing changes. Safe to
    repeat; the next call finishes an interrupted one. Raises InvalidInput, without changes, for a pool that is not
    finished, and PoolMissing for one that is not there.
    """
    plan = delete_plan(pool.sku, unfinished=unfinished, dry_run=dry_run, on_progress=on_progress)
    return run_sync(plan, pool.store)
