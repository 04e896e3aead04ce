"""The command line: help, screens, tables, and files that are written."""

import io
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import typer
from rich.table import Table

from segmented.celery.selling.order_formats import Reading
from segmented.celery.selling.orders_file import FileOrder
from segmented.celery.selling.report import Book, Outcome, write_results
from segmented.celery.selling.servers import Choices
from segmented.cli.console import Console
from segmented.cli.main import build, run
from segmented.cli.pool_view import segment_rows
from segmented.errors import InvalidInput
from segmented.files import STDOUT, check_kept, check_writable, whole_file, write_whole
from segmented.models import Order
from segmented.models.ids import visible
from tests.support.command_line import ran

READ: Final = frozenset(
    {
        ("bench granularity", "--plan"),
        ("bench granularity", "--strategy"),
        ("bench orders", "--plan"),
        ("orders erase", "--archive"),
    }
)
READ_AGAIN: Final = frozenset({("pool archive", "--to"), ("torture locks", "--log")})

ARTICLE = ["advise", "--hold", "20ms", "--workers", "32", "--stock", "10000", "--quantity", "1-5"]


def written(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(list(words))
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_what_is_assumed_is_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    said = "- The round trip of 500 us is an assumption; --measure finds it for your server.\n"
    assert said in written(capsys, *ARTICLE)[1]
    assert said not in written(capsys, *ARTICLE, "--round-trip", "1ms")[1]


@pytest.mark.parametrize(("typed", "pair"), [("3", [3, 3]), ("1-5", [1, 5]), ("7-7", [7, 7])])
def test_a_quantity_is_a_number_or_a_range(capsys: pytest.CaptureFixture[str], typed: str, pair: list[int]) -> None:
    words = ["advise", "--hold", "5ms", "--workers", "4", "--stock", "100", "--quantity", typed, "--json", "-"]
    assert json.loads(written(capsys, *words)[1])["workload"]["quantity"] == pair


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (["--hold", "20"], "--hold '20' is not a time such as 20ms, 1.5s or 300us"),
        (["--hold", "-5ms"], "--hold '-5ms' is not a time such as 20ms, 1.5s or 300us"),
        (["--hold", "1e9s"], "--hold '1e9s' is not a time such as 20ms, 1.5s or 300us"),
        (["--hold", "999999s"], "hold 999999.0 must be between 0 and 3,600 s"),
        (["--round-trip", "fast"], "--round-trip 'fast' is not a time such as 20ms, 1.5s or 300us"),
        (["--quantity", "5-1"], "quantity 5-1: the smallest order comes first"),
        (["--quantity", "1-"], "--quantity '1-' is not a number of units, or a range such as 1-5"),
        (["--quantity", "0"], "quantity 0 must be between 1 and 1,000,000,000"),
        (["--workers", "0"], "workers 0 must be between 1 and 1,000,000"),
        (["--row-rate", "nan"], "row rate nan must be between 0.001 and 1,000,000,000 a second"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_two(
    capsys: pytest.CaptureFixture[str], changed: list[str], sentence: str
) -> None:
    assert written(capsys, *ARTICLE, *changed) == (2, "", f"segmented: {sentence}\n")


def test_up_to_twenty_four_segments_have_a_row_each() -> None:
    heads, rows = segment_rows(tuple(range(24)))
    assert heads == ("segment", "units")
    assert rows == [(str(number), str(number)) for number in range(24)]


def test_more_segments_are_folded_into_ranges_that_leave_none_out() -> None:
    heads, rows = segment_rows((5, *([0] * 9), *range(40)), rows_max=5)
    assert heads == ("segments", "units", "least", "most", "empty")
    assert rows == [
        ("0-9", "5", "0", "5", "9"),
        ("10-19", "45", "0", "9", "1"),
        ("20-29", "145", "10", "19", "0"),
        ("30-39", "245", "20", "29", "0"),
        ("40-49", "345", "30", "39", "0"),
    ]


def test_a_text_for_standard_output_is_printed_and_no_file_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    check_writable(STDOUT, "--json")
    write_whole(STDOUT, "{}\n")
    with whole_file(Path("-"), is_secret=True) as out:
        out.write("line\n")
    assert capsys.readouterr().out == "{}\nline\n"
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_read_again_cannot_be_standard_output(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"^--log - is standard output, which cannot be read again: name a file$"):
        check_kept(STDOUT, "--log")
    check_kept(tmp_path / "log", "--log")
    check_kept(None, "--log")


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


CHOICES = Choices(
    file=Path("orders.csv"),
    stock=10,
    segment_count=2,
    reading=Reading(),
    worker_count=2,
    url=None,
    database=None,
    broker=None,
    data=None,
    results=None,
    force=False,
    json=None,
    republish_after=30.0,
)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"segment_count": 0}, "--segments 0 must be between 1 and 4,096"),
        ({"segment_count": 4_097}, "--segments 4097 must be between 1 and 4,096"),
        ({"stock": 0}, "--stock 0 must be between 1 and 1,000,000,000,000"),
        ({"worker_count": 0}, "--workers 0 must be between 1 and 64"),
        ({"republish_after": 0.0}, "--republish-after 0 must be 1 second or more"),
        ({"republish_after": float("nan")}, "--republish-after nan must be 1 second or more"),
        ({"reading": Reading(sku=" ")}, "--sku names no sku"),
        ({"json": Path("/")}, "--json / is a folder, not a file"),
        ({"results": Path("orders.csv")}, "--results orders.csv is the file of the orders: name another file"),
        ({"json": Path("./orders.csv")}, "--json orders.csv is the file of the orders: name another file"),
        (
            {"results": Path("a.csv"), "json": Path("../" + Path.cwd().name + "/a.csv")},
            f"--json ../{Path.cwd().name}/a.csv is the file of --results: name another file",
        ),
        ({"results": Path("/nowhere/x.csv")}, "--results /nowhere/x.csv: there is no folder /nowhere"),
        (
            {"url": "http://u:secret@host"},
            "--url http://u:***@host is not a Redis URL: it should begin with redis://, rediss://, unix://",
        ),
        (
            {"data": Path("shop"), "url": "redis://host", "database": "sqlite:///x"},
            "--data keeps the servers that this command starts, so --url and --database cannot be given with it",
        ),
    ],
)
def test_an_option_that_cannot_be_is_refused(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        replace(CHOICES, **changes).check()  # type: ignore[arg-type]  # each case gives its fields what they take
    assert str(refused.value) == sentence


def test_results_replace_a_file_only_if_forced(tmp_path: Path) -> None:
    results = tmp_path / "results.csv"
    replace(CHOICES, results=results).check()
    results.write_text("of an earlier sale")
    with pytest.raises(InvalidInput) as refused:
        replace(CHOICES, results=results).check()
    assert str(refused.value) == f"--results {results} exists: name another file, or give --force to replace it"
    replace(CHOICES, results=results, force=True).check()
    replace(CHOICES, results=Path("/dev/null")).check()
    assert results.read_text() == "of an earlier sale"


WRITTEN = """\
order_id,sku,quantity,outcome,segment,fencing_token,sequence
"a,1",mug,2,confirmed,3,4294967297,12
b,mug,9,refused,,,13
c,mug,1,undecided,,,
"""


def a_book() -> Book:
    orders = {
        ("mug", order_id): FileOrder(Order(order_id, quantity), "mug", line)
        for line, (order_id, quantity) in enumerate([("a,1", 2), ("b", 9), ("c", 1)], start=2)
    }
    book = Book(orders)
    decided = {"a,1": Outcome("confirmed", 3, 4_294_967_297, 12), "b": Outcome("refused", None, None, 13)}
    book.begin({("mug", order_id): outcome for order_id, outcome in decided.items()})
    return book


def test_results_have_one_line_an_order_in_the_files_order(tmp_path: Path) -> None:
    write_results(tmp_path / "results.csv", a_book())
    assert (tmp_path / "results.csv").read_text() == WRITTEN
    assert [path.name for path in tmp_path.iterdir()] == ["results.csv"]


@pytest.mark.parametrize("order_id", ["=1+1", "+1", "-1", "@SUM(A1)"])
def test_no_spreadsheet_takes_an_order_id_for_a_formula(tmp_path: Path, order_id: str) -> None:
    path = tmp_path / "results.csv"
    write_results(path, Book({("=mug", order_id): FileOrder(Order(order_id, 2), "=mug", 2)}))
    assert path.read_text().splitlines()[1] == f"'{order_id},'=mug,2,undecided,,,"


def test_a_file_that_is_replaced_keeps_its_rights(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    path.write_text("before")
    path.chmod(0o640)
    write_results(path, a_book())
    assert (path.read_text(), path.stat().st_mode & 0o777) == (WRITTEN, 0o640)


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_results(pipe, a_book())
    reader.join(30)
    assert (read, pipe.is_fifo()) == ([WRITTEN], True)


CONFIRMED = Outcome("confirmed", 3, 17, 5)
REFUSED = Outcome("refused", None, None, 6)
A = ("mug", "a")


def book_of(*order_ids: str) -> Book:
    lines = (FileOrder(Order(order_id, 1), "mug", line) for line, order_id in enumerate(order_ids, 2))
    return Book({line.key: line for line in lines})


def test_an_outcome_counts_once_and_those_of_others_do_not() -> None:
    book = book_of("a", "b")
    book.fresh(10)
    assert book.decide([(A, CONFIRMED), (A, REFUSED), (("mug", "z"), CONFIRMED), (("cup", "a"), CONFIRMED)]) == 1
    assert book.outcomes == {A: CONFIRMED}
    assert (book.counts["confirmed"], book.counts["refused"], book.undecided) == (1, 0, 1)


def test_an_order_that_was_given_up_is_not_waited_for_and_can_still_be_decided() -> None:
    book = book_of("a", "b")
    book.fresh(2)
    book.give_up("mug", ["b", "z"])
    book.give_up("cup", ["c"])
    assert (book.under_way, book.is_over, book.undecided) == (1, False, 2)
    assert book.decide([(A, CONFIRMED)]) == 1
    assert (book.is_over, book.undecided) == (True, 1)
    assert book.decide([(("mug", "b"), CONFIRMED)]) == 1
    assert (book.is_over, book.undecided) == (True, 0)


def options(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:  # noqa: ANN401  # typer's own click
    """Yield each option of a command and of those below it, with the words of its command."""
    yield from ((" ".join(path), one) for one in command.params if one.param_type_name == "option")
    for name, below in getattr(command, "commands", {}).items():
        yield from options(below, (*path, name))


def test_every_option_with_a_file_to_write_says_that_a_dash_is_standard_output() -> None:
    found = {
        (path, option.opts[0]): option.help or ""
        for path, option in options(typer.main.get_command(build()))
        if str(option.metavar).startswith("FILE")
    }
    silent = {place for place, text in found.items() if "- is standard output" not in text}
    assert silent == READ | READ_AGAIN
    assert len(found) > 60
