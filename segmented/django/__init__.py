"""The Django app: `INSTALLED_APPS = [..., "segmented.django"]` and `SEGMENTED = {"URL": "redis://localhost:6379/0"}`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.django.apps import gate as gate, store as store
    from segmented.django.middleware import IdempotencyMiddleware as IdempotencyMiddleware
    from segmented.django.task import Once as Once

LATE: Final = from_modules(
    {
        "segmented.django.apps": "gate store",
        "segmented.django.middleware": "IdempotencyMiddleware",
        "segmented.django.task": "Once",
    }
)
"""Names that are imported on first use, and their modules: Django imports the package before its settings are ready."""

if not TYPE_CHECKING:  # a type checker would otherwise accept any name
    __getattr__, __dir__, __all__ = late(__name__, LATE)
