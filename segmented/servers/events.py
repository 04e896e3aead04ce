"""The log of the embedded servers: silent until a program asks for it, fields as attributes of each record."""

from __future__ import annotations

import logging
from typing import Final

events: Final = logging.getLogger("segmented.servers")
events.addHandler(logging.NullHandler())  # without it, Python itself prints warnings that no program asked for
