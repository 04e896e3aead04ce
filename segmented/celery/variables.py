"""The environment variables of the workers: which are known, and one sentence for one that is not, or cannot be.

SEGMENTED_URL and SEGMENTED_DATABASE are those of the command `segmented`, too; it has no others.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from segmented.masking import unknown
from segmented.models import shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pydantic import ValidationError

from segmented.errors import InvalidInput

PREFIX: Final = "SEGMENTED_"
SECRET: Final = frozenset({"url", "database", "broker"})
SERVICE_LINK: Final = re.compile(
    r"SEGMENTED_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?)?)"
)
"""What Kubernetes adds by itself to every container for a service whose name begins with `segmented`."""


def refuse_unknown(environment: Iterable[str], known: Sequence[str]) -> None:
    """Raise InvalidInput for the first variable with our prefix that nobody reads: it would be silent for ever."""
    for name in sorted(environment):
        is_ours = name.upper().startswith(PREFIX)
        if is_ours and name.upper() not in known and not SERVICE_LINK.fullmatch(name.upper()):
            (nearest,) = get_close_matches(name.upper(), known, n=1, cutoff=0.0)
            message = f"{shortened(name)[1:-1]} is no setting of the workers: is {nearest} meant?"
            raise InvalidInput(message)


def sentence_of(error: ValidationError, settings: Iterable[str]) -> str:
    """Return what is wrong with the first variable that cannot be; the values of URLs are not shown."""
    wrong = error.errors(include_url=False, include_context=False)[0]
    field = str(wrong["loc"][0]) if wrong["loc"] else ""
    if wrong["type"] == "extra_forbidden":  # only a program can say it, and its value may be a password
        return unknown("setting", field, settings)
    name = f"{PREFIX}{field.upper()}"
    said = wrong["msg"].removeprefix("Input ").partition(", unable to")[0]
    value = "" if field in SECRET else f" is {shortened(wrong['input'])}:"
    return f"{name}{value} it {said[0].lower()}{said[1:]}"
