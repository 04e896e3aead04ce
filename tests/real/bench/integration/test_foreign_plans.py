"""A plan of somebody else's repository, which git could be made to run programs for."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final

from bench.engine.servers import commit_of

if TYPE_CHECKING:
    from pathlib import Path

GIT: Final = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")


def test_a_plan_of_a_foreign_repository_runs_none_of_its_programs(tmp_path: Path) -> None:
    plan, trap, sprung = tmp_path / "plan.toml", tmp_path / "trap", tmp_path / "sprung"
    plan.write_text("", encoding="utf-8")
    trap.write_text(f"#!/bin/sh\ntouch {sprung}\n")
    trap.chmod(0o755)
    for words in (("init", "-q"), ("add", "plan.toml"), ("commit", "-qm", "a plan")):
        subprocess.run([*GIT, *words], cwd=tmp_path, check=True)
    subprocess.run([*GIT, "config", "core.fsmonitor", str(trap)], cwd=tmp_path, check=True)
    assert commit_of(plan) is None
    assert not sprung.exists()
    subprocess.run([*GIT, "status"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    assert sprung.exists()  # the trap is one
