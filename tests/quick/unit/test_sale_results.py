from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING

import pytest

from segmented.celery.selling.book import Book, Outcome
from segmented.celery.selling.fleet import children_peak_mib, own_peak_mib
from segmented.celery.selling.orders_file import FileOrder
from segmented.celery.selling.report import write_json, write_results
from segmented.errors import SegmentedError
from segmented.models import Order

if TYPE_CHECKING:
    from pathlib import Path

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


def test_a_new_file_has_the_rights_that_any_new_file_has(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    write_json(tmp_path / "sale.json", {"orders": 3})
    assert json.loads((tmp_path / "sale.json").read_text()) == {"orders": 3}
    assert (tmp_path / "sale.json").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_results(pipe, a_book())
    reader.join(30)
    assert (read, pipe.is_fifo()) == ([WRITTEN], True)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(SegmentedError, match=r"gone/results\.csv cannot be written: No such file or directory$"):
        write_results(tmp_path / "gone" / "results.csv", a_book())


def test_peak_memory_is_known_for_this_process_and_its_children() -> None:
    assert 10 < own_peak_mib() < 2_000
    assert all(peak > 0 for peak in children_peak_mib({}).values())
