"""The historical lock in the conformance suite. It has no lease that an operation renews, so it has no `USES`."""

from typing import Final

from segmented.locks import AsyncGetSetLock, GetSetLock
from segmented.protocol.get_set import DeleteValue, GetSet
from tests.support.contract.locks.kinds import Handles

LONG_AGO: Final = "1.000000"

HANDLES: Final = (
    Handles(
        "GetSetLock (historical)",
        GetSetLock,
        AsyncGetSetLock,
        frozenset({"ttl", "alone", "with"}),
        lapsing=lambda hold: [GetSet(hold.name, LONG_AGO)],
        ending=lambda hold: [DeleteValue(hold.name)],
        tells_rest=False,
        key_lapses=False,
        holes={
            "A1": "an owner that slept deletes its successor's key",
            "A2": "the same",
            "A7": "a DEL that runs twice finds nothing the second time",
            "A13": "nothing repeats a DEL that was cancelled",
            "B4": "it counts from when it asked, and does not look again",
            "B10": "a client whose clock is ahead takes a lock that is held",
            "D11": "nothing undoes a SETNX that was cancelled",
            "E1": "a SETNX that runs twice finds its own value the second time",
        },
    ),
)
