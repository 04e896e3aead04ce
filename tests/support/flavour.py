"""Which store and colour a test of the contract runs on."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Flavour:
    """Which store, in which colour, over which dialect."""

    store: str
    colour: str
    protocol: int = 2
    is_text: bool = False

    def __str__(self) -> str:
        """Name the parameter of a test."""
        if self.store != "redis":
            return f"{self.store}-{self.colour}"
        return f"redis-{self.colour}-resp{self.protocol}-{'text' if self.is_text else 'bytes'}"
