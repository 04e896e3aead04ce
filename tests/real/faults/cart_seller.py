"""Processes that sell carts and die: `python -m tests.real.faults.cart_seller URL WORD die STEPS END HOLD_MS`, or
`... URL WORD sell NAME`.

With `die` it has STEPS children, one after the other. Each begins one cart of three skus, ends it as END says, and
kills itself before effect number 1, 2, ... STEPS, where the operations of a batch are effects of their own. It exits
with the number of children that did not die by that. With `sell` it sells carts until somebody kills it.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from typing import TYPE_CHECKING

from segmented import RedisStore
from segmented.plans import run_sync
from segmented.stock import Cart
from tests.support.pools.carting import ending_before, one_by_one, reserved_and_ended

if TYPE_CHECKING:
    from collections.abc import Sequence

SKUS = ("a", "b", "c", "d")
SELL_HOLD_MS = 600_000
"""No hold lapses by itself: the test lets those of dead sellers lapse."""


def die() -> None:
    """End at once, without any cleaning up."""
    os.kill(os.getpid(), signal.SIGKILL)


def cart_that_dies(word: str, step: int, end: str) -> Cart:
    """Name the cart by the step before which its seller dies."""
    return Cart(f"{end}-{step}", [(f"{word}-c", 1), (f"{word}-a", 2), (f"{word}-b", 3)])


def sell(store: RedisStore, word: str, name: str) -> None:
    chance, index = random.Random(name), 0
    while True:
        index += 1
        lines = [(f"{word}-{chance.choice(SKUS)}", chance.randint(1, 3)) for _ in range(chance.randint(2, 4))]
        end = chance.choice(["confirm", "confirm", "cancel", "forget"])
        run_sync(one_by_one(reserved_and_ended(Cart(f"{name}-{index}", lines), end, SELL_HOLD_MS)), store)


def sell_until(url: str, word: str, step: int, end: str, hold_ms: int) -> None:
    with RedisStore.from_url(url) as store:
        plan = reserved_and_ended(cart_that_dies(word, step, end), end, hold_ms)
        run_sync(ending_before(plan, step, die), store)


def killed_children(url: str, word: str, steps: int, end: str, hold_ms: int) -> int:
    """Count the children that the signal has ended."""
    killed = 0
    for step in range(1, steps + 1):
        child = os.fork()
        if child == 0:
            try:
                sell_until(url, word, step, end, hold_ms)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        killed += os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    return killed


def main(arguments: Sequence[str]) -> None:
    url, word, what, *rest = arguments
    if what == "die":
        steps = int(rest[0])
        sys.exit(steps - killed_children(url, word, steps, rest[1], int(rest[2])))
    with RedisStore.from_url(url) as store:
        sell(store, word, rest[0])


if __name__ == "__main__":
    main(sys.argv[1:])
