"""No text of a file, a key or an argument controls a terminal."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from rich.table import Table

from segmented.cli.console import Console
from segmented.models.ids import visible
from tests.support.command_line import ran

if TYPE_CHECKING:
    from pathlib import Path

CLEARS = "\x1b[2J\x1b]0;title\x07\x9b31m\u202egpj.exe"
SHOWN = r"\x1b[2J\x1b]0;title\x07\x9b31m\u202egpj.exe"


def test_a_character_that_would_control_a_terminal_is_an_escape_and_others_stay() -> None:
    assert visible(CLEARS) == SHOWN
    assert visible("a\tb\nü 票 №") == "a\tb\nü 票 №"


@pytest.mark.parametrize("is_terminal", [False, True])
def test_the_console_of_the_commands_shows_escapes(*, is_terminal: bool) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=is_terminal, color_system=None, width=200)
    console.print(CLEARS, markup=False, highlight=False)
    table = Table()
    table.add_column(CLEARS)
    table.add_row(CLEARS)
    console.print(table)
    written = out.getvalue()
    assert written.count(r"\x1b[2J") == 3
    assert not set(written) & {"\x1b", "\x07", "\x9b", "\u202e"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (f"order_id,quantity,note {CLEARS}\na,1,x\n", "columns not used: note "),
        (f"{CLEARS},quantity\na,1\n", "lacks the column order_id"),
        (f'order_id,quantity\n"{CLEARS}",1\n', "has characters that cannot be printed"),
        (f'order_id,quantity\na,"{CLEARS}"\n', "must be a whole number"),
        (f'order_id,quantity\na,1,"{CLEARS}"\n', "3 fields, but the header has 2"),
    ],
)
def test_nothing_in_a_file_of_orders_controls_the_terminal(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "orders.csv"
    file.write_text(content, encoding="utf-8")
    done = ran("sell", str(file), "--stock", "1", "--segments", "1", "--url", "redis://127.0.0.1:1", url=None)
    assert said in done.stderr
    assert not set(done.stdout + done.stderr) & {"\x1b", "\x07", "\x9b", "\u202e"}


def test_nothing_in_the_name_of_a_file_controls_the_terminal() -> None:
    done = ran("sell", f"/nowhere/{CLEARS}", "--stock", "1", "--segments", "1", url=None)
    assert done.returncode == 2
    assert done.stderr == f"segmented: /nowhere/{SHOWN} does not exist\n"
