"""The numbers that a page says, and whether a target of `tests/proofs.toml` shows something."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

RESULTS: Final = ("docs/results/", "bench/", "tests/conformance/", "tests/torture/")
FENCE: Final = re.compile(r"^\s*```")
ITEM: Final = re.compile(r"^\s*(?:[-*]|\d+\.) +")
NUMBER: Final = re.compile(r"(?<![\w.])(\d[\d,_]*(?:\.\d+)?|[a-z]+)(?= ?(%|[A-Za-z]+)?)")
COUNTED: Final = ["three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
VALUES: Final = {word: number for number, word in enumerate(COUNTED, start=3)} | {
    "a": 1,
    "an": 1,
    "one": 1,
    "once": 1,
    "two": 2,
    "twice": 2,
    "third": 3,
    "sixteen": 16,
    "hundred": 100,
    "thousand": 1_000,
    "half": 0.5,
    "quarter": 0.25,
    "tenth": 0.1,
}
UNITS: Final = {
    "us": 0.000_001,
    "ms": 0.001,
    "milliseconds": 0.001,
    "min": 60,
    "minute": 60,
    "minutes": 60,
    "h": 3_600,
    "hour": 3_600,
    "hours": 3_600,
    "day": 86_400,
    "days": 86_400,
    "week": 604_800,
    "KiB": 1_024,
    "MiB": 1_048_576,
    "GiB": 1_073_741_824,
    "%": 0.01,
}


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, list item or table of a page, by its first line."""

    line: int
    text: str

    @property
    def numbers(self) -> set[float]:
        """Return all numbers of the block, as they stand and, where they have a unit, in seconds or bytes."""
        found = set[float]()
        for word, unit in NUMBER.findall(self.text):
            value = VALUES.get(word) if word.isalpha() else float(word.rstrip(",_").replace(",", "").replace("_", ""))
            if value is not None:
                found |= {value, round(value * UNITS.get(unit, 1), 9)}
        return found


def blocks(text: str) -> Iterator[Block]:
    """Split a page into paragraphs, list items and tables; headings, fences and indented code are left out."""
    lines: list[str] = []
    start, is_fenced, indent = 0, False, 0
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        item = ITEM.match(line)
        is_turned = bool(lines) and line.startswith("|") != lines[-1].startswith("|")
        is_code = not lines and line.startswith(" " * (indent + 4))
        is_out = not line.strip() or FENCE.match(line) or line.startswith("#") or is_code
        if lines and (is_out or item or is_turned):
            yield Block(start, "\n".join(lines))
            lines = []
        if line.startswith("#"):
            indent = 0
        if FENCE.match(line):
            is_fenced = not is_fenced
        elif not is_out and not is_fenced:
            indent = len(item.group()) if item else indent if line.startswith(" ") else 0
            start = start if lines else number
            lines.append(line)


def shows_nothing(target: str, root: Path) -> str:
    """Say why a target shows nothing, or return an empty text."""
    path, _, name = target.partition("::")
    if not (root / path).is_file():
        return "no such file"
    if not path.endswith(".py"):
        return "" if path.startswith(RESULTS) else "no file of results"
    return "" if name in _tests_of(root / path) else "no such test"


@cache
def _tests_of(path: Path) -> set[str]:
    return set(re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))


def sets_nothing(target: str, root: Path, numbers: set[float]) -> str:
    """Say why a target does not set one of these numbers, or return an empty text."""
    path, _, name = target.partition("::")
    if not (root / path).is_file():
        return "no such file"
    found = _defaults(ast.parse((root / path).read_text(encoding="utf-8")).body)
    if name not in found:
        return "no such constant, field or argument"
    value = _plain(found[name], found)
    if value is None or {value, value / 1_000} & numbers:
        return ""
    return f"it is {value:g}, which the text does not say"


def _defaults(body: list[ast.stmt], prefix: str = "") -> dict[str, ast.expr]:
    found: dict[str, ast.expr] = {}
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            found[prefix + node.target.id] = node.value
            if isinstance(node.value, ast.Call):
                found |= {f"{prefix}{node.target.id}.{one.arg}": one.value for one in node.value.keywords}
        elif isinstance(node, ast.Assign):
            found |= {prefix + one.id: node.value for one in node.targets if isinstance(one, ast.Name)}
        elif isinstance(node, ast.ClassDef):
            found |= _defaults(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            last = [*node.args.posonlyargs, *node.args.args][-len(node.args.defaults) or 10**9 :]
            pairs = [
                *zip(last, node.args.defaults, strict=True),
                *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True),
            ]
            found |= {f"{prefix}{node.name}.{argument.arg}": value for argument, value in pairs if value is not None}
    return found


def _plain(node: ast.expr, known: dict[str, ast.expr]) -> float | None:
    """Return the number that an expression is: a literal, a constant of the file, a product, the default of a field."""
    if isinstance(node, ast.Constant):
        return float(node.value) if isinstance(node.value, int | float) and not isinstance(node.value, bool) else None
    if isinstance(node, ast.Name):
        return _plain(known[node.id], known) if node.id in known else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Pow):
        left, right = _plain(node.left, known), _plain(node.right, known)
        if left is None or right is None:
            return None
        return left * right if isinstance(node.op, ast.Mult) else float(left**right)
    if isinstance(node, ast.Call):  # Field(default=...), field(default=...)
        return next((_plain(one.value, known) for one in node.keywords if one.arg == "default"), None)
    return None
