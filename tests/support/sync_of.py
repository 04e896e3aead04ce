"""Writes the modules for threads from those for asyncio: `make sync`, or `python -m tests.support.sync_of --check`.

A module `NAME.py` of the package that begins with `HEADER` is written from `async_NAME.py` beside it; to begin one,
write that line alone. In a module with the line `MARK`, what follows that line is written from the classes and
functions above it with `Async`, `async_` or `_async` in their names; to begin one, end the module with that line.

A statement or an except clause whose first line ends in `# asyncio only` is left out (a reason may follow: `# asyncio
only: ...`), and a comment `# threads: CODE` becomes its code. After that words are replaced, and ruff formats the
result, sorts the imports of a whole module and drops those that are not used any more.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
HEADER: Final = "# Written by `make sync` from {source}: change that module.\n"
MARK: Final = "# --- For threads: written by `make sync` from the classes above. ---\n"
WORDS: Final = (
    (r"\b([Aa])n `(?=async with|Async)", r"\1 `"),
    (r"\basync (?=def |with |for )", ""),
    (r"\bawait ", ""),
    (r"`async with\b", "`with"),
    (r"__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\bGranting\[((?:[^\[\]]|\[[^\[\]]*\])*)\]", r"\1 | Refusal"),
    (r"\b(?:Awaitable|Acquiring)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]", r"\1"),
    (r"\bCoroutine\[Any, Any, ((?:[^\[\]]|\[[^\[\]]*\])*)\]", r"\1"),
    (r"\bAsync(?=Handle\b)", "Sync"),
    (r"\bAsync(?=(?:Keeper|Lane|QuorumWakeups)\b)", "Thread"),
    (r"\bAsyncioWakeups\b", "ThreadWakeups"),
    (r"\bEndsWithItsAsyncBlock\b", "EndsWithItsBlock"),
    (r"(?<![A-Za-z0-9])Async(?=[A-Z])", ""),
    (r"\basyncio\.(?=Event\b)", "threading."),
    (r"\basyncio\.Task\[None\]", "threading.Thread"),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"\bredis\.asyncio(?=\.)", "redis"),
    (r"\bfrom redis import asyncio as redis_asyncio\b", "import redis"),
    (r"\bredis_asyncio\.", "redis."),
    (r",(?: \*,)? is_release: bool = False\b", ""),
    (r", is_release=(?:is_release|True|isinstance\(operation, Release\))", ""),
    (r"\(OfOneLoop\):", ":"),
    (r"\bclose_async_", "close_"),
    (r"\baclose\b", "close"),
    (r"\basyncio\.current_task\b", "threading.current_thread"),
    (r"\bthe (current|running) task\b", r"the \1 thread"),
    (r"\btask_owner\b", "thread_owner"),
    (r"\breturn Acquiring\(self, ", "return self._acquired("),
    (r"\brun_async\b", "run_sync"),
    (r"\b_(perform|wait)_async\b", r"_\1"),
    (r"\bin this task\b", "in this thread"),
    (r"\bis_async=True", "is_async=False"),
    (r"\basync_keeper\b", "thread_keeper"),
    (r"\basync_release_later\b", "release_later"),
    (r"\bchecked_async\b", "checked_sync"),
    (r"\basync_store\b", "sync_store"),
    (r"\basync_(?=\w)", ""),
    (r"\bcoroutine function", "function"),
    (r"\bfor asyncio\b", "for threads"),
    (r"\bof this event loop\b", "of this process"),
)


ONLY: Final = re.compile(r"# asyncio only(?:: .*)?$")
NAMED: Final = re.compile(r"\w*Async|_?async_|\w+_async$")


def written() -> list[Path]:
    """Return the modules for threads that say that they are written from another module."""
    package = ROOT / "segmented"
    return [
        path
        for path in sorted(package.rglob("*.py"))
        if path.read_text().startswith(HEADER.format(source=f"async_{path.name}"))
    ]


def written_in_part() -> list[Path]:
    """Return the modules that hold the classes for asyncio and those for threads that are written from them."""
    return [path for path in sorted((ROOT / "segmented").rglob("*.py")) if f"\n{MARK}" in path.read_text()]


def sync_of(source: str, name: str) -> str:
    """Return the text of the module for threads; `name` is its source's file name."""
    return _finished(HEADER.format(source=name) + _for_threads(source), "I,UP028,UP034,F401")


def completed(source: str) -> str:
    """Return the text of a module with `MARK`: all that is written by hand, and below it the classes for threads."""
    by_hand = source.partition(f"\n{MARK}")[0] + f"\n{MARK}"
    lines = by_hand.splitlines(keepends=True)
    parts = []
    for node in ast.parse(by_hand).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and NAMED.match(node.name):
            first = min((one.lineno for one in node.decorator_list), default=node.lineno)
            end = node.end_lineno or first
            while lines[end : end + 1] and re.match(" +#", lines[end]):  # `# threads:` after its last statement
                end += 1
            parts.append(_for_threads("".join(lines[first - 1 : end])))
    return _finished("\n\n".join([by_hand, *parts]), "UP028,UP034")


def _for_threads(source: str) -> str:
    text = _without_parentheses(_without_asyncio(source))
    for pattern, word in WORDS:
        text = re.sub(pattern, word, text)
    return text


def _finished(text: str, rules: str) -> str:
    ruff = (sys.executable, "-m", "ruff")
    stdin_name = f"--stdin-filename={ROOT / 'segmented' / 'x.py'}"
    fix = ("check", "--quiet", f"--select={rules}", "--fix", "--unsafe-fixes")
    for command in (fix, ("format", "--quiet")):
        asked = (*ruff, *command, stdin_name, "-")
        text = subprocess.run(asked, input=text, capture_output=True, text=True, check=True).stdout
    return text


def _without_asyncio(source: str) -> str:
    """Leave out the statements that are marked `# asyncio only`, and uncomment those marked `# threads:`."""
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt | ast.ExceptHandler) and ONLY.search(lines[node.lineno - 1]):
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
    """Write each module, or with `checks` name those that are not as their sources say; return the exit code."""
    stale = 0
    sources = {target: target.with_name(f"async_{target.name}") for target in written()}
    texts = {target: sync_of(source.read_text(), source.name) for target, source in sources.items()}
    texts |= {target: completed(target.read_text()) for target in written_in_part()}
    for target, text in texts.items():
        if target.read_text() != text:
            stale += 1
            if not checks:
                target.write_text(text)
            what = "differs from its source: run `make sync`" if checks else "written"
            print(f"{target.relative_to(ROOT)} {what}")  # noqa: T201  # its output
    return int(checks and stale > 0)


if __name__ == "__main__":
    sys.exit(main(checks="--check" in sys.argv[1:]))
