"""What a user sees: the names of the library and the commands."""

from __future__ import annotations

import inspect
import re
import tomllib

from segmented import errors
from segmented.cli.main import MEASURING
from segmented.orders.tables import HEAD
from tests.support.paths import ROOT
from tests.support.reference import public_names
from tests.support.versions import PARTS

ERRORS = [name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Exception)]


def test_every_error_is_a_public_name() -> None:
    """So that a page that names one says enough to find and catch it."""
    assert len(ERRORS) >= 30
    assert [name for name in ERRORS if name not in public_names(errors)] == []


def test_every_command_of_the_checkout_exists() -> None:
    for command, module in MEASURING.items():
        text = (ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
        assert re.search(rf"^(def {command}\(|{command} = )", text, re.MULTILINE), command


def test_every_file_that_a_stack_runs_exists() -> None:
    assert [name for names in PARTS.values() for name in names if not (ROOT / name).is_file()] == []


def test_djangos_migrations_end_with_the_revision_of_this_release() -> None:
    """A new revision of the gate's tables needs a migration in segmented/django/migrations."""
    files = sorted((ROOT / "segmented" / "django" / "migrations").glob("0*.py"))
    made = [re.findall(r"^.*operations = .*?GateTables\(\"(\w+)\"", file.read_text(), re.DOTALL) for file in files]
    assert [name for names in made for name in names][-1] == HEAD


def test_the_classifiers_are_the_pythons_that_the_page_names() -> None:
    page = (ROOT / "docs" / "reference" / "versions.md").read_text(encoding="utf-8")
    named = {version.rpartition(".")[0] for version in re.findall(r"\b3\.\d+\.\d+\b", page)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    prefix = "Programming Language :: Python :: "
    found = {line.removeprefix(prefix) for line in project["classifiers"] if line.startswith(f"{prefix}3.")}
    assert (found, project["requires-python"]) == (named, ">=3.11")
