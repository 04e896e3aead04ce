"""An effect in the store itself, done in the same script that keeps the outcome: once, or not at all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class StoreEffect:
    """Lua that is run with the outcome of a run, on the same server; what it returns, as JSON, is the result.

    `script` is the body of a function that sees its own `KEYS` and `ARGV`. It is done once for a key, however often the
    message is delivered, and not at all by a holder that was overtaken. A script does not roll back: check everything
    before the first write, so that a failing effect leaves nothing. On a cluster its keys must be in the slot of the
    record: put `Run.hash_tag` into their names.

    ```python
    StoreEffect("return redis.call('INCRBY', KEYS[1], ARGV[1])", keys=["points:7"], arguments=[10])
    ```
    """

    script: str
    keys: Sequence[str] = field(default=())
    arguments: Sequence[str | int] = field(default=())

    def __post_init__(self) -> None:
        """Refuse an effect that cannot be sent."""
        text: object = self.script
        if not isinstance(text, str) or not text.strip():
            message = "an effect needs the text of its Lua"
            raise InvalidInput(message)
        for what, found in (("keys", self.keys), ("arguments", self.arguments)):
            if isinstance(found, str) or not all(isinstance(one, str | int) for one in found):
                message = f"the {what} of an effect are a list of texts or whole numbers, not {found!r:.80}"
                raise InvalidInput(message)

    def texts(self) -> tuple[str, ...]:
        """Return the arguments as they are sent."""
        return tuple(str(one) for one in self.arguments)
