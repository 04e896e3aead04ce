"""What a store stands on: redis-py's own parsers or hiredis, asyncio's own loop or uvloop.

`make real` has the Redis sides of a test divided among them, so that each combination is met and none costs more
time: threads with RESP2 and tasks with RESP3 use hiredis, the others redis-py's own parsers, and tasks with RESP3
uvloop.
`make test-parsers` runs the contract ring on each alone, named by SEGMENTED_TEST_STACK.
"""

import asyncio
import os
from importlib.util import find_spec
from typing import Any, Final

from redis._parsers import _AsyncRESP2Parser, _RESP2Parser  # their public parameter `parser_class` takes them

from tests.support.flavour import Flavour

STACKS: Final = ("hiredis", "python", "uvloop")
ASKED: Final = os.environ.get("SEGMENTED_TEST_STACK", "")

if ASKED and ASKED not in STACKS:
    raise ValueError(f"SEGMENTED_TEST_STACK={ASKED} is none of {', '.join(STACKS)}")


def parser_options(flavour: Flavour, asked: str = ASKED) -> dict[str, Any]:
    """Return the connections' option for the flavour's parser; redis-py makes a RESP3 parser of it where one is due."""
    is_pure = asked == "python" or (not asked and (flavour.colour == "sync") is (flavour.protocol == 3))
    if not is_pure:
        return {}
    return {"parser_class": _RESP2Parser if flavour.colour == "sync" else _AsyncRESP2Parser}


def new_event_loop(flavour: Flavour, asked: str = ASKED) -> asyncio.AbstractEventLoop:
    """Make the flavour's loop."""
    is_fast = asked == "uvloop" or (not asked and flavour.store == "redis" and flavour.protocol == 3)
    if is_fast and find_spec("uvloop") is not None:
        import uvloop  # noqa: PLC0415  # not on every system

        return uvloop.new_event_loop()
    return asyncio.new_event_loop()
