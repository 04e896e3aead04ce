"""The lock of readers and writers in the tests of all kinds."""

from typing import Any, Final

from segmented.locks import AsyncReadWriteLock, ReadWriteLock
from segmented.protocol.read_write import AcquireRead, AcquireWrite, ReleaseReadWrite, RenewReadWrite
from tests.support.contract.locks.kinds import EVERY_LEASE, LONG_MS, Handles, Use


def _reading(store: Any, name: str, **options: Any) -> Any:  # noqa: ANN401  # a constructor's
    return ReadWriteLock(store, name, **options).read


def _writing(store: Any, name: str, **options: Any) -> Any:  # noqa: ANN401  # as above
    return ReadWriteLock(store, name, **options).write


def _reading_async(store: Any, name: str, **options: Any) -> Any:  # noqa: ANN401  # as above
    return AsyncReadWriteLock(store, name, **options).read


def _writing_async(store: Any, name: str, **options: Any) -> Any:  # noqa: ANN401  # as above
    return AsyncReadWriteLock(store, name, **options).write


USES: Final = (
    Use(
        "read_write",
        "read",
        lambda name, me: AcquireRead(name, me, LONG_MS),
        lambda name, me: RenewReadWrite(name, me, LONG_MS),
        ReleaseReadWrite,
    ),
    Use(
        "read_write",
        "write",
        lambda name, me: AcquireWrite(name, me, LONG_MS),
        lambda name, me: RenewReadWrite(name, me, LONG_MS),
        ReleaseReadWrite,
    ),
)
HANDLES: Final = (
    Handles(
        "ReadWriteLock (read)",
        _reading,
        _reading_async,
        EVERY_LEASE | {"fencing"},
        rival_sync=_writing,
        rival_asyncio=_writing_async,
    ),
    Handles(
        "ReadWriteLock (write)",
        _writing,
        _writing_async,
        EVERY_LEASE | {"alone", "fencing"},
        rival_sync=_reading,
        rival_asyncio=_reading_async,
    ),
)
