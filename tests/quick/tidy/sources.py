"""Which files a rule looks at, and the shape of what it finds."""

import ast
import subprocess
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

from tests.support.paths import ROOT

PACKAGES: Final = ("segmented", "workers", "bench")

Rule = Callable[[str], Iterator[tuple[int, str]]]
"""A rule reads the text of a file and names each offence by its line."""


@cache
def committed() -> tuple[Path, ...]:
    """Every file that is in the repository, or would be after `git add`; without git, all that is no tool's own."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],  # noqa: S607  # git is wherever git is
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        found = [ROOT / line for line in listed.stdout.splitlines()]
    else:
        own = [path for path in ROOT.iterdir() if not path.name.startswith(".") or path.name in {".ci", ".gitignore"}]
        found = [file for path in own for file in (path.rglob("*") if path.is_dir() else [path])]
    return tuple(sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts))


def files(*folders: str, suffix: str) -> list[Path]:
    """Return the committed files of these folders that end in `suffix`."""
    tops = [ROOT / folder for folder in folders]
    return [path for path in committed() if path.suffix == suffix and any(path.is_relative_to(top) for top in tops)]


@lru_cache(maxsize=2)
def parsed(text: str) -> ast.Module:
    """Return the tree of a text, which several rules look at one after the other."""
    return ast.parse(text)


def text_of(path: Path) -> str | None:
    """Return the text of a file, or None for one that is not text."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def offences(rule: Rule, paths: Iterable[Path]) -> list[str]:
    """Run a rule over files; each offence becomes `path:line: what is wrong`."""
    return [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in paths
        if (text := text_of(path)) is not None
        for line, what in rule(text)
    ]
