"""A publisher that knows only the tasks' names, without their code or any library."""

from __future__ import annotations

from bench.proof.peers.dedup.app import make_app
from bench.proof.peers.dedup.settings import Settings

app = make_app(Settings.from_environment())
