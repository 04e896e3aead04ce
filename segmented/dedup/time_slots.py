"""Run a function once in each slot of time, whichever process asks first: a cron job on every machine.

Slots are counted from 1970 by the caller's wall clock: with a period of 300 seconds, every five minutes of the hour. A
clock that is off by less than a period runs nothing twice in a slot, as it asks for the same slot earlier or later.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from segmented.clock import WallClock, in_seconds
from segmented.dedup.dedup import Dedup
from segmented.dedup.identity import checked_key
from segmented.dedup.terms import DAY, read_words
from segmented.errors import InFlight, InvalidInput
from segmented.locks.call_keys import checked_function, name_of, shape_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.clock import Clock, Duration
    from segmented.plans.drivers import Store

P = ParamSpec("P")
V = TypeVar("V")
SLOTS_MAX: Final = 10**11
"""More than the number of any slot, so that a name that is too long is refused when the function is decorated."""
WALL: Final = WallClock()


def once_per(
    period: Duration | str,
    *,
    store: Store | Callable[[], Store],
    name: str | None = None,
    ttl: Duration = 30.0,
    clock: Clock = WALL,
) -> Callable[[Callable[P, V]], Callable[P, V | None]]:
    """Decorate a function: the first call in a slot runs it, and every other call in that slot returns None at once.

    `period` is a number of seconds, a timedelta, or a text such as "30s", "5m", "2h" or "1d". `name` identifies the
    function over all processes (default: its module and name); `clock` is the wall clock. A run that raises frees its
    slot for the next call. A process that dies in the function keeps the slot for `ttl` seconds; then the next call in
    the slot runs it again.
    Raises InvalidInput for a bad period, and for anything but a function.
    """
    seconds = _seconds(period)
    dedup = Dedup(store, "once-per", keep=2 * seconds, ttl=ttl, dump=lambda _: "null")

    def decorate(function: Callable[P, V]) -> Callable[P, V | None]:
        checked_function(function, "@once_per(...)")
        if shape_of(function) != "function":
            raise InvalidInput(f"once_per runs a function, and {name_of(function)} is a {shape_of(function)}")
        scope = name or name_of(function)
        checked_key(f"{scope} {seconds:g} {SLOTS_MAX}", "the name of a job with its period and slot")

        @wraps(function)
        def run(*arguments: P.args, **options: P.kwargs) -> V | None:
            try:
                turn = dedup.begin(f"{scope} {seconds:g} {int(clock.now() // seconds)}")
            except InFlight:
                return None
            with turn:
                if turn.is_replay:
                    return None
                result = function(*arguments, **options)
                turn.finish()
            return result

        return run

    return decorate


def _seconds(period: Duration | str) -> float:
    found: object = in_seconds(read_words(period))
    if isinstance(found, bool) or not isinstance(found, int | float) or not 1 <= found <= 366 * DAY:
        message = f"a period of {period!r} is not one: give seconds from 1 on, or a text such as '5m', '2h' or '1d'"
        raise InvalidInput(message)
    return float(found)
