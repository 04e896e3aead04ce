"""A publisher that knows only the tasks' names, without their code or any library."""

from __future__ import annotations

from tests.conformance.dedup.app import make_app
from tests.conformance.dedup.settings import Settings

app = make_app(Settings.from_environment())
