"""The pages lead somewhere, name what is there, and say what the code says."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

import segmented
import segmented.errors
from tests.quick.tidy.rules_claims import blocks
from tests.quick.tidy.sources import files
from tests.support.glossary import PAGE, section
from tests.support.paths import ROOT, TESTS
from tests.support.reference import public_names

START = ROOT / "docs" / "index.md"
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s#]*)(#(?P<part>[^)\s]*))?\)")
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
IMPORTS = (ast.Import, ast.ImportFrom)
PUBLIC = {*segmented.LATE, "asyncio"}
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def links(page: Path) -> list[tuple[str, str]]:
    """Return the targets of a page's links inside the repository, each with the part of the page it points at."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    found = [(match["target"], match["part"] or "") for match in LINK.finditer(text)]
    return [(target, part) for target, part in found if "://" not in target and not target.startswith("mailto:")]


def reachable(start: Path) -> set[Path]:
    """Follow links from page to page."""
    seen, ahead = set[Path](), [start.resolve()]
    while ahead:
        page = ahead.pop()
        if page in seen or page.suffix != ".md" or not page.is_file():
            continue
        seen.add(page)
        ahead.extend((page.parent / target).resolve() for target, _ in links(page) if target)
    return seen


def broken(page: Path) -> list[str]:
    """Return the links of a page that lead nowhere: no such file, or no such heading in it."""
    wrong = []
    for target, part in links(page):
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or (part and file.suffix == ".md" and part not in headings(file)):
            wrong.append(f"{target}#{part}" if part else target)
    return wrong


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as code hosts make them."""
    titles = re.findall(r"^#+ +(.*)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def groups(page: Path) -> dict[str, int]:
    """Return how many links stand under each heading of a page."""
    parts = re.split(r"^#+ +(.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {title: len(LINK.findall(text)) for title, text in zip(parts[::2], parts[1::2], strict=True)}


def unimported(page: Path) -> list[str]:
    """Return the public names that a page's Python uses before it, or an earlier part of the page, imports them."""
    known, lacking = set[str](), list[str]()
    for block in PYTHON.findall(page.read_text(encoding="utf-8")):
        tree = ast.parse(block, mode="exec", feature_version=(3, 11))
        nodes = list(ast.walk(tree))
        known |= {alias.asname or alias.name for node in nodes if isinstance(node, IMPORTS) for alias in node.names}
        used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        lacking += sorted((used & PUBLIC) - known)
    return lacking


def test_every_public_name_in_an_example_is_imported_on_its_page() -> None:
    pages = [*files("docs", suffix=".md"), ROOT / "README.md"]
    assert {str(page.relative_to(ROOT)): lacking for page in pages if (lacking := unimported(page))} == {}


def test_every_page_is_reachable_from_the_index() -> None:
    pages = {path.resolve() for path in files("docs", suffix=".md")}
    assert START.resolve() in pages
    assert sorted(str(page.relative_to(ROOT)) for page in pages - reachable(START)) == []


def test_no_group_of_the_index_has_more_than_seven_links() -> None:
    counted = groups(START)
    assert sum(counted.values()) > 60
    assert {title: count for title, count in counted.items() if count > 7} == {}


PAYMENTS: Final = ROOT / "docs" / "how-to" / "examples" / "payments"


@pytest.mark.parametrize("program", sorted(PAYMENTS.rglob("*.py")), ids=lambda program: program.stem)
def test_the_page_about_payments_shows_or_links_each_of_its_programs(program: Path) -> None:
    code = program.read_text(encoding="utf-8")
    page = (ROOT / "docs" / "how-to" / "take-payments.md").read_text(encoding="utf-8")
    assert (f"```python\n{code}```\n" in page) is (program.stem == "flask_shop")
    assert f"]({program.relative_to(PAYMENTS.parents[1])})" in page
    assert program.stem == "provider" or len(code.splitlines()) <= 80


def test_every_link_leads_somewhere() -> None:
    pages = [*files("docs", suffix=".md"), ROOT / "README.md", ROOT / "CHANGELOG.md"]
    assert {str(page.relative_to(ROOT)): wrong for page in pages if (wrong := broken(page))} == {}


def test_the_page_on_faults_names_tests_that_are_there() -> None:
    page = (START.parent / "reference" / "faults.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", page)
    gone = [name for file, name in named if f"def {name}(" not in (TESTS / file).read_text(encoding="utf-8")]
    assert (len(named) > 50, gone) == (True, [])


def test_the_section_of_errors_is_what_the_docstrings_say() -> None:
    assert PAGE.read_text(encoding="utf-8").endswith(section()), "`python -m tests.support.glossary` writes it"
    assert section().count("\n| `") == len(public_names(segmented.errors))


def test_an_error_without_a_cure_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segmented.errors.PoolMissing, "__doc__", "The pool is not open.")
    with pytest.raises(LookupError, match="PoolMissing needs a second paragraph that begins with 'Cure: '"):
        section()


SOURCE_MAP_PAGE: Final = ROOT / "docs" / "explanation" / "source-map.md"
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
    page = SOURCE_MAP_PAGE.read_text(encoding="utf-8")
    assert wrong(page) == []
    assert sum(PATH.fullmatch(word) is not None for word in CODE.findall(page)) > 60


def test_each_list_of_where_to_add_something_is_short() -> None:
    lists = SOURCE_MAP_PAGE.read_text(encoding="utf-8").split("\n## Where to add ")[1:]
    assert [len(re.findall(r"^\d+\. ", text, re.MULTILINE)) for text in lists] == [8, 5, 4, 10, 9]
