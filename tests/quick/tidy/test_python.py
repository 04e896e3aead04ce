"""Python, Lua and text keep the rules."""

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.quick.tidy import rules_python as rules
from tests.quick.tidy.sources import PACKAGES, Rule, files, offences
from tests.support import sync_of, weight
from tests.support.paths import ROOT

CLOCK = ROOT / "segmented" / "clock.py"
LIKE_REDIS_PY = [ROOT / "segmented" / "compat.py"]
"""Their signatures are redis-py's own."""
QUICK = ROOT / "tests" / "quick"
WAITING: dict[str, str] = {}
"""Files of the quick ring that may name a clock or a sleep, and why no test of theirs is decided by it."""
PUBLISHED = [ROOT / "bench" / "report" / "comparisons.py"]
"""Its sentences are those of published results."""


def all_offences(looking: list[Rule], looked_at: list[Path]) -> list[str]:
    """Apply several rules to each file in turn, which is parsed once."""
    assert looked_at
    return [found for path in looked_at for rule in looking for found in offences(rule, [path])]


def test_all_python_keeps_its_size_and_gives_reasons_for_silence() -> None:
    assert all_offences([rules.size, rules.silence_has_a_reason], files(*PACKAGES, "tests", suffix=".py")) == []


def test_our_packages_name_options_and_booleans() -> None:
    looked_at = [path for path in files(*PACKAGES, suffix=".py") if path not in LIKE_REDIS_PY]
    assert all_offences([rules.options_by_name, rules.booleans_by_name], looked_at) == []


def test_messages_are_in_plain_english() -> None:
    looked_at = [path for path in files(*PACKAGES, suffix=".py") if path not in PUBLISHED]
    assert len(looked_at) > 300
    assert offences(rules.plain_messages, looked_at) == []


def test_the_library_reads_no_wall_clock() -> None:
    looked_at = [path for path in files("segmented", suffix=".py") if path != CLOCK]
    assert looked_at
    assert offences(rules.no_wall_clock, looked_at) == []


def test_the_library_and_the_bench_import_nothing_private() -> None:
    assert (
        all_offences([rules.no_private_import], [*files("segmented", suffix=".py"), *files("bench", suffix=".py")])
        == []
    )


def test_quick_tests_do_not_wait_for_time() -> None:
    looked_at = [
        path for path in files("tests/quick", suffix=".py") if path.relative_to(QUICK).as_posix() not in WAITING
    ]
    assert all_offences([rules.no_waits], looked_at) == []


def test_tests_replace_nothing_that_is_private() -> None:
    assert all_offences([rules.no_private_patch], files("tests", suffix=".py")) == []


def test_names_of_tests_have_at_most_80_characters() -> None:
    assert all_offences([rules.names_of_tests], files("tests", "bench", suffix=".py")) == []


def test_modules_for_threads_are_as_their_source_for_asyncio_says() -> None:
    assert len(sync_of.written()) >= 2
    assert sync_of.main(checks=True) == 0


def test_what_a_reader_carries_does_not_grow() -> None:
    assert {name: count for name, count in weight.weights().items() if count > weight.MOST[name]} == {}


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
    assert len(sources) > 300
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
