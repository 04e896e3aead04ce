"""The CPU time of a server's steps, and how much of it ten milliseconds are on the machine at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

BOUND_MS: Final = 10.0
ROUNDS: Final = 1_300_000
LOOP: Final = f"local sum = 0 for round = 1, {ROUNDS} do sum = sum + round % 7 end return sum"
"""It takes a server as long as the longest step may take, on the machine of the published numbers."""


class StepTimes:
    """The least CPU time that each step of a server took, beside a loop that shows how fast the machine is now.

    Other programs on the same processor make a step take longer, and never shorter: so the least time counts.
    """

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._least: dict[str, float] = {}
        self._loop_ms = float("inf")

    def measure(self, name: str, step: Callable[[], object]) -> None:
        """Do a step, and the loop."""
        self._least[name] = min(self._least.get(name, float("inf")), self._ms(step))
        self._loop_ms = min(self._loop_ms, self._ms(lambda: self._client.eval(LOOP, 0)))

    def too_long(self) -> dict[str, float]:
        """Return the steps that took ten milliseconds, or as long as the loop if this machine is slower than that."""
        bound = max(BOUND_MS, self._loop_ms)
        return {name: least for name, least in self._least.items() if least >= bound}

    def _ms(self, step: Callable[[], object]) -> float:
        before = self._used_ms()
        step()
        return self._used_ms() - before

    def _used_ms(self) -> float:
        found: Any = self._client.info("cpu")
        return 1_000 * (float(found["used_cpu_user_main_thread"]) + float(found["used_cpu_sys_main_thread"]))
