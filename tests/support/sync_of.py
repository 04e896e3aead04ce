"""Writes the modules for threads from those for asyncio: `make sync`, or `python -m tests.support.sync_of --check`.

A module `NAME.py` of the package that begins with `HEADER` is written from `async_NAME.py` beside it; to begin one,
write that line alone. A statement whose first line ends in `# asyncio only` is left out, and a comment
`# threads: CODE` becomes its code. After that words are replaced, and ruff formats the result, sorts its imports and
drops those that are not used any more.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
HEADER: Final = "# Written by `make sync` from {source}: change that module.\n"
WORDS: Final = (
    (r"\basync (?=def |with |for )", ""),
    (r"\bawait ", ""),
    (r"`async with\b", "`with"),
    (r"__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\bGranting\[((?:[^\[\]]|\[[^\[\]]*\])*)\]", r"\1 | Refusal"),
    (r"\b(?:Awaitable|Acquiring)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]", r"\1"),
    (r"\bCoroutine\[Any, Any, ((?:[^\[\]]|\[[^\[\]]*\])*)\]", r"\1"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\brun_async\b", "run_sync"),
    (r"\bis_async=True", "is_async=False"),
    (r"\basync_keeper\b", "thread_keeper"),
    (r"\basync_release_later\b", "release_later"),
    (r"\bchecked_async\b", "checked_sync"),
    (r"\basync_store\b", "sync_store"),
    (r"\basync_(?=\w)", ""),
    (r"\bcoroutine function", "function"),
    (r"\bfor asyncio\b", "for threads"),
)


def written() -> list[Path]:
    """Return the modules for threads that say that they are written from another module."""
    package = ROOT / "segmented"
    return [
        path
        for path in sorted(package.rglob("*.py"))
        if path.read_text().startswith(HEADER.format(source=f"async_{path.name}"))
    ]


def sync_of(source: str, name: str) -> str:
    """Return the text of the module for threads; `name` is its source's file name."""
    text = _without_parentheses(_without_asyncio(source))
    for pattern, word in WORDS:
        text = re.sub(pattern, word, text)
    text = HEADER.format(source=name) + text
    ruff = (sys.executable, "-m", "ruff")
    stdin_name = f"--stdin-filename={ROOT / 'segmented' / 'x.py'}"
    fix = ("check", "--quiet", "--select=I,UP028,UP034,F401", "--fix", "--unsafe-fixes")
    for command in (fix, ("format", "--quiet")):
        asked = (*ruff, *command, stdin_name, "-")
        text = subprocess.run(asked, input=text, capture_output=True, text=True, check=True).stdout
    return text


def _without_asyncio(source: str) -> str:
    """Leave out the statements that are marked `# asyncio only`, and uncomment those marked `# threads:`."""
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and lines[node.lineno - 1].rstrip().endswith("# asyncio only"):
            first = min((one.lineno for one in getattr(node, "decorator_list", ())), default=node.lineno)
            for at in range(first - 1, node.end_lineno or first):
                lines[at] = ""
    return re.sub(r"(?m)^( *)# threads:(?: (.*))?$", r"\1\2", "".join(lines))


def _without_parentheses(source: str) -> str:
    """Drop the parentheses of `(await call(...)).name`, which a plain call does not need."""
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    cuts = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Await) and isinstance(node.value, (ast.Call, ast.Name, ast.Attribute)):
            before, after = (
                (node.lineno - 1, node.col_offset - 1),
                ((node.end_lineno or 0) - 1, node.end_col_offset or 0),
            )
            opening = lines[before[0]][: before[1] + 1]
            if re.search(rb"(?:^|[^\w\])])\($", opening) and lines[after[0]][after[1] : after[1] + 1] == b")":
                cuts += [before, after]
    for line, column in sorted(cuts, reverse=True):
        lines[line] = lines[line][:column] + lines[line][column + 1 :]
    return b"".join(lines).decode()


def main(*, checks: bool) -> int:
    """Write each module, or with `checks` name those that are not as their source says; return the exit code."""
    stale = 0
    for target in written():
        source = target.with_name(f"async_{target.name}")
        text = sync_of(source.read_text(), source.name)
        if target.read_text() != text:
            stale += 1
            if not checks:
                target.write_text(text)
            what = "differs from its source: run `make sync`" if checks else "written"
            print(f"{target.relative_to(ROOT)} {what}")  # noqa: T201  # its output
    return int(checks and stale > 0)


if __name__ == "__main__":
    sys.exit(main(checks="--check" in sys.argv[1:]))
