"""A plan whose sleeps pass on a clock that only the test moves."""

from typing import Any, Final

from segmented.plans import Listen, Park, Plan
from segmented.protocol import Effect
from tests.fixtures.stores import Side

SLEEPS_MAX: Final = 100


def asleep(side: Side, plan: Plan[Any], slept: list[int]) -> Plan[Any]:
    """Run a plan that nobody wakes: note how many milliseconds each sleep lasts, and let them pass at once."""
    reply: Any = None
    while True:
        try:
            effect: Effect[Any] = plan.send(reply)
        except StopIteration as stop:
            return stop.value
        if isinstance(effect, Park):
            seconds = min(effect.due, effect.deadline) - side.clock.now()
            slept.append(round(1_000 * seconds))
            assert len(slept) < SLEEPS_MAX, "it asks without a pause"
            side.pass_time(seconds)
            reply = False
        elif isinstance(effect, Listen):
            reply = None
        else:
            reply = yield effect
