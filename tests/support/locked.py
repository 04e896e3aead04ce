"""The lock files of requirements/, which pip installs with their hashes: what stands in them."""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from segmented.cli.main import DISTRIBUTION
from tests.support.paths import ROOT

FOLDER: Final = ROOT / "requirements"
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS: Final[dict[str, list[str]]] = PROJECT["project"]["optional-dependencies"]


@dataclass(frozen=True, slots=True)
class Machine:
    """Where packages are installed: a version of Python, and `sys.platform`."""

    python: str
    platform: str = "linux"

    def has(self, marker: Marker | None) -> bool:
        """Return whether a line with this marker is for this machine."""
        version = ".".join(self.python.split(".")[:2])
        here = {"python_full_version": self.python, "python_version": version, "sys_platform": self.platform}
        cpython = {"implementation_name": "cpython", "platform_python_implementation": "CPython"}
        return marker is None or marker.evaluate({**here, **cpython})


def asked(machine: Machine, *extras: str) -> Iterator[Requirement]:
    """Yield each requirement of the project with these extras on others' packages."""
    for line in [*PROJECT["project"]["dependencies"], *(line for extra in extras for line in EXTRAS[extra])]:
        found = Requirement(line)
        if found.name == DISTRIBUTION:
            yield from asked(machine, *found.extras)
        elif machine.has(found.marker):
            yield found


def locked(name: str, machine: Machine) -> dict[str, str]:
    """Return the versions that a lock file has for a machine, by package. Each has a hash."""
    found: dict[str, str] = {}
    for block in re.split(r"\n(?=\S)", (FOLDER / f"{name}.txt").read_text(encoding="utf-8")):
        if block.startswith("#"):
            continue
        lines = [line.strip().removesuffix("\\").strip() for line in block.splitlines()]
        one = Requirement(lines[0])
        (pin,) = one.specifier
        assert pin.operator == "=="
        assert len(lines) > 1
        assert [line for line in lines[1:] if not re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", line)] == []
        if machine.has(one.marker):
            assert canonicalize_name(one.name) not in found
            found[canonicalize_name(one.name)] = pin.version
    return found


def outside(versions: dict[str, str], requirements: Iterator[Requirement]) -> list[str]:
    """Return the requirements that these versions do not meet."""
    return [
        str(one)
        for one in requirements
        if not one.specifier.contains(versions.get(canonicalize_name(one.name), "0"), prereleases=True)
    ]
