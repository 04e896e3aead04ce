"""What a deployment's files tell the workers: settings that are read, and commands that start something."""

import re
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from celery import Celery
from celery.app.utils import find_app

from segmented.celery.settings import PREFIX, SECRET, WorkerSettings
from segmented.files import SUFFIX
from tests.support.paths import ROOT

NAMED: Final = re.compile(rf"\b{PREFIX}[A-Z_]+\b")
PINNED: Final = re.compile(r"[\w./-]+:\d+\.\d+(\.\d+)?-[\w.-]+")
STAGE: Final = re.compile(r"^FROM (\S+) AS (\S+)\n(.*?)(?=^FROM |\Z)", re.MULTILINE | re.DOTALL)
STAGES: Final = {
    name: f"FROM {base}\n{body}"
    for base, name, body in STAGE.findall((ROOT / "Dockerfile").read_text(encoding="utf-8"))
}
"""The stages of the Dockerfile: their lines by their names, in order."""


def unknown_settings(names: Iterable[str]) -> list[str]:
    """Return the variables with our prefix that no field of the workers' settings reads."""
    read = {f"{PREFIX}{name.upper()}" for name in WorkerSettings.model_fields}
    read |= {f"{PREFIX}{name.upper()}{SUFFIX}" for name in SECRET}
    return sorted(name for name in names if name.startswith(PREFIX) and name not in read)


def settings_named(path: Path) -> set[str]:
    """Return the variables with our prefix that a text names."""
    return set(NAMED.findall(path.read_text(encoding="utf-8")))


def is_there(command: Sequence[str]) -> bool:
    """Does a command start something that exists: an app of ours, a module of ours, a locustfile?"""
    program = command[0].rsplit("/", 1)[-1]
    if program == "celery":
        option, module, verb = command[1:4]
        return option == "-A" and isinstance(find_app(module), Celery) and verb in {"worker", "beat"}
    if program == "python":
        return command[1] == "-m" and find_spec(f"{command[2]}.__main__") is not None
    if program == "locust":
        return command[1] == "-f" and (ROOT / command[2]).is_file()
    return False
