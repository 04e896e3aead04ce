"""Orders in SQL: the durable gate, which decides every order's fate once Redis has said yes."""

from segmented.orders.engine import connect
from segmented.orders.gate import Gate

__all__ = ["Gate", "connect"]
