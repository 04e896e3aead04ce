"""No module imports itself by way of others: not when it runs, not in a function, and not for its types alone."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from tests.quick.tidy.sources import PACKAGES, files
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def circle(sources: Mapping[str, str]) -> list[str]:
    """Return modules of which each imports the next, and the last is the first; nothing where there is no circle.

    Every import counts, also below TYPE_CHECKING and in a function. A package stands for its `__init__`.
    """
    imports = {name: set(imported(text, sources)) - {name} for name, text in sources.items()}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found[::-1]
    return []


def imported(text: str, modules: Mapping[str, str]) -> Iterator[str]:
    """Return the modules that this text imports, of these."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name in modules)
            case ast.ImportFrom(module=str(module), names=names):
                parts = {f"{module}.{alias.name}" for alias in names} & modules.keys()
                yield from parts
                if len(parts) < len(names) and module in modules:
                    yield module


def test_there_is_no_circle_of_imports() -> None:
    sources = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path.read_text(
            encoding="utf-8"
        )
        for path in files(*PACKAGES, suffix=".py")
    }
    assert len(sources) > 400
    assert circle(sources) == []


def test_a_circle_of_imports_is_noticed() -> None:
    typed = "if TYPE_CHECKING:\n    from shop.c import C\n"
    late = "def sell():\n    from shop import a\n"
    assert circle({"shop": "", "shop.a": "from shop.b import B\n", "shop.b": typed, "shop.c": late}) in (
        ["shop.a", "shop.b", "shop.c", "shop.a"],
        ["shop.b", "shop.c", "shop.a", "shop.b"],
        ["shop.c", "shop.a", "shop.b", "shop.c"],
    )
    assert (
        circle({"shop": "from shop.a import A\n", "shop.a": "import shop.b\n", "shop.b": "import shop.b, json\n"}) == []
    )
