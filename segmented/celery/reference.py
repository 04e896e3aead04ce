"""Generate the reference page of the worker settings from the settings themselves (`make docs`)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from segmented.celery.settings import LOCAL_DATABASE, LOCAL_URL, WorkerSettings
from segmented.celery.settings_rules import PREFIX

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

HEAD: Final = """\
# Worker settings

Written by `make docs` from the settings themselves. Environment variables; an empty one counts as not set. They are
read and checked once, when a worker or beat starts: an unknown name, a value that cannot be, and values that do not fit
together end it with exit code 2 and one sentence, in which no password stands. How to use them:
[Celery workers](../how-to/celery-workers.md).

| variable | default | meaning |
| --- | --- | --- |
"""
TAIL: Final = """
`SEGMENTED_URL_FILE`, `SEGMENTED_BROKER_FILE` and `SEGMENTED_DATABASE_FILE` name files that hold the value, in one line:
for deployments that mount secrets as files. A file and the variable itself are not both set.

A broker on the stock's own server is refused, however the two are spelled, unless `SEGMENTED_BROKER_ON_STOCK_SERVER`
says so, or neither `SEGMENTED_URL` nor `SEGMENTED_BROKER` is set. The same database is refused always.

Where `segmented server` runs for the same account (and with the same `TMPDIR`), its two servers take the place of the
defaults of `SEGMENTED_URL` and `SEGMENTED_DATABASE`.
"""
DEFAULTS: Final = {
    "url": f"`{LOCAL_URL}`",
    "database": f"`{LOCAL_DATABASE}`",
    "broker": "next database of the stock's server",
}


def page() -> str:
    """Return the page in Markdown."""
    rows = (
        f"| `{PREFIX}{name.upper()}` | {_default(name, field)} | {' '.join((field.description or '').split())} |\n"
        for name, field in WorkerSettings.model_fields.items()
    )
    return f"{HEAD}{''.join(rows)}{TAIL}"


def _default(name: str, field: FieldInfo) -> str:
    if name in DEFAULTS:
        return DEFAULTS[name]
    value = field.default
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:g}"
    return f"`{value}`" if value else "none"


if __name__ == "__main__":
    sys.stdout.write(page())
