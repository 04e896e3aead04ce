"""The reference page of the Python names."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest

from segmented import models
from segmented.cli.reference import MODULES, public_names, python_page, section
from tests.support.paths import ROOT


def described(**values: object) -> list[str]:
    """Return what the page would list of a module with these names."""
    module = ModuleType("shop", "A shop. It sells.")
    vars(module).update(values, __all__=list(values))
    return section(module, {}).splitlines()


def test_the_page_is_what_the_docstrings_say() -> None:
    written = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    assert written == python_page(), "`make docs` writes it"


@pytest.mark.parametrize("name", MODULES)
def test_every_package_of_the_page_has_a_section(name: str) -> None:
    assert f"\n## {name}\n" in python_page()


def test_an_entry_is_the_call_without_types_and_the_first_sentence() -> None:
    def buy(  # every kind of parameter
        sku: str, /, quantity: int = 1, *rest: str, gift: object = object(), _seen: bool = False, **options: int
    ) -> None:
        """Buy units
        of a sku. Nothing is paid.

        Raises nothing.
        """

    assert described(buy=buy) == [
        "## shop",
        "",
        "A shop.",
        "",
        "- `buy(sku, /, quantity=1, *rest, gift=..., **options)`: Buy units of a sku.",
    ]


def test_keyword_only_arguments_and_positional_only_ones_have_their_marks() -> None:
    def first(sku: str, /) -> None: ...
    def second(*, sku: str) -> None: ...

    assert described(first=first, second=second)[-2:] == ["- `first(sku, /)`", "- `second(*, sku)`"]


def test_a_call_that_is_too_long_to_read_is_its_name() -> None:
    def buy() -> None:
        """Buy."""

    parameters = [inspect.Parameter(f"parameter_{number}", inspect.Parameter.KEYWORD_ONLY) for number in range(10)]
    buy.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # functions may have one
    assert described(buy=buy)[-1] == "- `buy(...)`: Buy."


def test_constants_and_aliases_are_as_the_code_has_them() -> None:
    lines = section(models, {}).splitlines()
    assert "- `EPOCH_MAX = 2**20`: More than any pool needs: each loss of data costs one." in lines
    assert "- `Taken = Reserved | Refusal`: The answer to a reservation." in lines


def test_a_name_is_described_once_and_named_again_in_later_modules() -> None:
    listed = {name: getattr(models, name) for name in public_names(models) if name != "Order"}
    lines = section(models, listed).splitlines()
    assert lines[4].startswith("- `Order(order_id, quantity=1, customer_id=None)`: ")
    assert lines[6].startswith("Also here: `Acquired`, ")
