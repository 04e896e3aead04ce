"""systemd itself checks the units of the examples."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.support.paths import ROOT
from tests.support.rings import require

SYSTEMD: Final = ROOT / "docs" / "how-to" / "examples" / "systemd"
UNITS: Final = ("segmented-worker@.service", "segmented-beat.service")
INSTALLED: Final = "/opt/segmented"
EXPOSURE_MAX: Final = "20"
"""Of 100: systemd calls up to 20 "OK", and what is not hardened at all 96."""


def installed(folder: Path, name: str) -> Path:
    """Write a unit as it would be where the programs are, be they others."""
    (folder / "bin").mkdir()
    for program in ("python", "celery"):
        shutil.copy("/bin/true", folder / "bin" / program)
    text = (SYSTEMD / name).read_text(encoding="utf-8")
    unit = folder / name
    unit.write_text(text.replace(INSTALLED, str(folder)), encoding="utf-8")
    return unit


def systemd_says(*words: str | Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    require("systemd", found=program is not None, missing="the program systemd-analyze is not on the PATH")
    return subprocess.run(
        [str(program), *map(str, words)],
        check=False,
        capture_output=True,
        text=True,
        timeout=50,
        env={**os.environ, "SYSTEMD_COLORS": "0", "LC_ALL": "C"},
    )


@pytest.mark.parametrize("name", UNITS)
def test_systemd_has_nothing_to_say_against_a_unit(tmp_path: Path, name: str) -> None:
    said = systemd_says("verify", installed(tmp_path, name))
    assert (said.returncode, said.stdout + said.stderr) == (0, "")


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_is_hardened(tmp_path: Path, name: str) -> None:
    said = systemd_says("security", "--offline=true", f"--threshold={EXPOSURE_MAX}", installed(tmp_path, name))
    assert said.returncode == 0, said.stdout
