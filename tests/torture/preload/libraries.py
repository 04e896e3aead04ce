"""Compiles the libraries with the machine's own compiler, and makes the environment that preloads one."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from segmented.servers.supervised import quiet_environment

COMPILER: Final = "cc"
COMPILE_SECONDS: Final = 60.0
FLAGS: Final = ("-O2", "-Wall", "-Werror", "-shared", "-fPIC")

Library = Literal["clock", "sync_log"]


def compiler() -> Path | None:
    """Return the path of the C compiler, or None if the machine has none."""
    found = shutil.which(COMPILER)
    return None if found is None else Path(found)


def compiled(name: Library, folder: Path, compiler: Path) -> Path:
    """Compile a library into `folder` and return its path."""
    source = Path(__file__).with_name(f"{name}.c")
    library = folder / f"{name}.so"
    command = [str(compiler), *FLAGS, "-o", str(library), str(source)]
    subprocess.run(command, check=True, timeout=COMPILE_SECONDS, capture_output=True)  # our own source
    return library


def preloading(library: Path, variable: str, file: Path) -> Mapping[str, str]:
    """Return the environment of a server with this library, which finds its file by the variable."""
    return quiet_environment(os.environ) | {"LD_PRELOAD": str(library), variable: str(file)}
