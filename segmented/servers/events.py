"""Events of the embedded servers, as fields on the standard library's logging: silent until a program asks for them."""

from __future__ import annotations

import logging
from typing import Final

import structlog

_logger = logging.getLogger("segmented.servers")
_logger.addHandler(logging.NullHandler())  # without it, Python itself prints warnings that no program asked for

events: Final[structlog.stdlib.BoundLogger] = structlog.wrap_logger(
    _logger,
    processors=[structlog.stdlib.filter_by_level, structlog.stdlib.render_to_log_kwargs],
    wrapper_class=structlog.stdlib.BoundLogger,
)
