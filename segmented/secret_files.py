"""Settings with a password, read from a file that another variable names: `SEGMENTED_URL_FILE` for SEGMENTED_URL.

Container engines and service managers pass secrets in this way: listing processes or describing a container does not
show the file's content, and child processes do not inherit it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FORMS: Final = {
    "SEGMENTED_URL": "a Redis URL, as redis://:PASSWORD@HOST:6379/0 is",
    "SEGMENTED_BROKER": "a broker's URL, as redis://:PASSWORD@HOST:6379/0 is",
    "SEGMENTED_DATABASE": "an order database's URL, as postgresql://USER:PASSWORD@HOST/DATABASE is",
}
"""The content of each file. An error quotes only this, because the wrong content may be the bare password."""
RULES: Final = "in a password, / ? # and @ are percent-encoded; unknown options are refused"
SUFFIX: Final = "_FILE"
BYTES_MAX: Final = 65_536


def said_in_file(
    name: str, environment: Mapping[str, str] = os.environ, *, check: Callable[[str], object] | None = None
) -> str | None:
    """Return the one line of the file that the variable `name` + "_FILE" names, or None if that is unset or empty.

    Raises InvalidInput if `name` is set too, if the file cannot be read or does not have exactly one line, or if
    `check` raises it for that line. Messages never show the file's content.
    """
    variable = f"{name}{SUFFIX}"
    said = {key.upper(): value for key, value in environment.items() if key.upper() in {name, variable}}
    file = said.get(variable)
    if not file:
        return None
    if said.get(name):
        message = f"{name} and {variable} are both set: set one of them"
        raise InvalidInput(message)
    try:
        with Path(file).open("rb") as opened:
            written = opened.read(BYTES_MAX + 1)
        lines = written.decode().splitlines()
    except OSError as error:
        message = f"{variable}: {file} cannot be read: {error.strerror}"
        raise InvalidInput(message) from None
    except ValueError:  # the error would contain its text
        message = f"{variable}: {file} is not valid UTF-8"
        raise InvalidInput(message) from None
    if len(lines) != 1 or not lines[0].strip() or len(written) > BYTES_MAX:
        message = f"{variable}: {file} should hold one line, the value of {name}"
        raise InvalidInput(message)
    value = lines[0].strip()
    if check is not None:
        try:
            check(value)
        except InvalidInput:  # it may quote the line
            message = f"{variable}: {file} should hold {FORMS[name]} ({RULES})"
            raise InvalidInput(message) from None
    return value
