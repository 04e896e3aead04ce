"""The page about the source: every file that it names exists, and every name on it is defined in the file beside it."""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import TYPE_CHECKING, Final

from tests.quick.tidy.rules_claims import blocks
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE: Final = ROOT / "docs" / "explanation" / "source-map.md"
CODE: Final = re.compile(r"`([^`]+)`")
PATH: Final = re.compile(r"[\w.-]+/[\w./-]*")
NAME: Final = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*")


@cache
def defined(path: str) -> frozenset[str]:
    """Return the names of a Python file: functions, classes, constants, and what classes have as `Class.name`."""
    return frozenset(_names(ast.parse((ROOT / path).read_text(encoding="utf-8")).body))


def _names(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    for node in body:
        match node:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name):
                yield prefix + name
            case ast.ClassDef(name):
                yield prefix + name
                yield from _names(node.body, f"{prefix}{name}.")
            case ast.AnnAssign(ast.Name(name)):
                yield prefix + name
            case ast.Assign(targets):
                yield from (prefix + target.id for target in targets if isinstance(target, ast.Name))


def wrong(page: str) -> list[str]:
    """Name each path that does not exist, and each name that no file of its row, item or paragraph defines."""
    found = []
    for block in blocks(page):
        for text in block.text.splitlines() if block.text.startswith("|") else [block.text]:
            words = CODE.findall(text)
            paths = [word for word in words if PATH.fullmatch(word)]
            found += [f"{path}: no such file" for path in paths if not (ROOT / path).exists()]
            known = {
                name for path in paths if path.endswith(".py") and (ROOT / path).is_file() for name in defined(path)
            }
            if paths:
                found += [f"{word}: not in {paths}" for word in words if NAME.fullmatch(word) and word not in known]
    return found


def test_every_file_and_every_name_on_the_page_is_there() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert wrong(page) == []
    assert sum(PATH.fullmatch(word) is not None for word in CODE.findall(page)) > 60


def test_what_the_page_promises_to_locate_is_in_its_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    places = [
        "lock's release",
        "lock kind's script",
        "making of keys",
        "a batch of orders",
        "a fence",
        "worker's envelope",
    ]
    assert [place for place in places if not re.search(rf"^\| [^|]*{place}[^|]*\| `", page, re.MULTILINE)] == []


def test_each_list_of_where_to_add_something_is_short() -> None:
    lists = PAGE.read_text(encoding="utf-8").split("\n## Where to add ")[1:]
    assert [len(re.findall(r"^\d+\. ", text, re.MULTILINE)) for text in lists] == [7, 10, 9]


def test_a_file_that_is_gone_and_a_name_that_moved_are_noticed() -> None:
    page = "- `Lock` in `segmented/locks/lock.py`\n- `Lock` in `segmented/keys.py`\n- `segmented/gone.py`\n"
    table = (
        "| a | b |\n| --- | --- |\n| `segmented/keys.py` | `lock_keys` |\n| `segmented/keys.py` | `LockKeys.list` |\n"
    )
    assert wrong(page) == ["Lock: not in ['segmented/keys.py']", "segmented/gone.py: no such file"]
    assert wrong(table) == ["LockKeys.list: not in ['segmented/keys.py']"]
