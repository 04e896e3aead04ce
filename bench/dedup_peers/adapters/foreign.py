"""A publisher that knows only the tasks' names, without their code or any library."""

from __future__ import annotations

from bench.dedup_peers.app import make_app
from bench.dedup_peers.settings import Settings

app = make_app(Settings.from_environment())
