from __future__ import annotations

import gzip
from pathlib import Path
from typing import Final

import pytest

from segmented.celery.selling.orders_file import FileOrder, read_orders
from segmented.errors import InvalidInput
from segmented.models import Order
from tests.support.paths import CDNOW

WHOLE: Final = "must be a whole number from 1 to 1,000,000,000"


def refusal(folder: Path, content: bytes, *, sku: str | None = None) -> str:
    """Return the one sentence with which a file is refused, its path shortened to its name."""
    path = folder / "orders.csv"
    path.write_bytes(content)
    with pytest.raises(InvalidInput) as refused:
        read_orders(path, sku=sku)
    return str(refused.value).replace(f"{folder}/", "")


def test_the_real_file_has_69659_orders_of_167881_units() -> None:
    file = read_orders(CDNOW)
    assert len(file.orders) == 69_659
    assert sum(line.order.quantity for line in file.orders.values()) == 167_881
    assert max(line.order.quantity for line in file.orders.values()) == 99
    assert len({line.order.customer_id for line in file.orders.values()}) == 23_570
    assert (file.repeated, file.ignored_columns, file.skus) == (0, ("ordered_on",), ("default",))
    assert file.orders["cdnow-00002"] == FileOrder(Order("cdnow-00002", 2, "4"), "default", 3)


def test_an_order_knows_its_line_its_customer_and_its_sku(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("sku,quantity,order_id,customer_id\nmug,2,a,ann\ncup,1,b,\nmug,3,c,bob\n")
    file = read_orders(path)
    assert list(file.orders.values()) == [
        FileOrder(Order("a", 2, "ann"), "mug", 2),
        FileOrder(Order("b", 1), "cup", 3),
        FileOrder(Order("c", 3, "bob"), "mug", 4),
    ]
    assert file.skus == ("mug", "cup")


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbforder_id,quantity\na,1\nb,2\n",
        b"order_id,quantity\r\na,1\r\nb,2\r\n",
        b'"order_id","quantity"\n"a","1"\n"b","2"\n',
        b"\n\norder_id,quantity\n\na,1\n   \nb,2\n\n",
        b" Order_ID , QUANTITY \n a , 1 \nb,002\n",
        b"order_id,quantity\na,1\nb,2",
        gzip.compress(b"order_id,quantity\na,1\nb,2\n", mtime=0),
    ],
    ids=["byte order mark", "CRLF", "quoted", "blank lines", "spaces and capitals", "no last newline", "gzip"],
)
def test_what_spreadsheets_and_exports_write_is_read(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "orders.csv"
    path.write_bytes(content)
    file = read_orders(path, sku="mug")
    assert [line.order for line in file.orders.values()] == [Order("a", 1), Order("b", 2)]
    assert file.skus == ("mug",)


def test_a_quoted_field_may_hold_commas_and_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text('order_id,note,quantity\n"a,1","first\nsecond",1\nb,,2\n')
    file = read_orders(path)
    assert [(line.order.order_id, line.line) for line in file.orders.values()] == [("a,1", 2), ("b", 4)]
    assert file.ignored_columns == ("note",)


def test_a_small_gzip_file_that_unpacks_to_more_than_allowed_is_refused_on_the_way(tmp_path: Path) -> None:
    row = b"o,1," + b"x" * 1_019 + b"\n"
    rows = b"order_id,quantity,note\n" + row * 1_025
    sentence = "orders.csv, line 1025: the file is larger than 1 MiB: allow more with --size-max MIB"
    for content in (rows, gzip.compress(rows, mtime=0)):
        path = tmp_path / "orders.csv"
        path.write_bytes(content)
        with pytest.raises(InvalidInput) as refused:
            read_orders(path, size_max=1)
        assert str(refused.value).replace(f"{tmp_path}/", "") == sentence
        assert read_orders(path, size_max=2).repeated == 1_024


def test_a_file_without_line_ends_is_refused_at_its_first_65_536_bytes() -> None:
    with pytest.raises(InvalidInput, match=r"^/dev/zero, line 1: it is longer than 65,536 bytes: is this a file of"):
        read_orders(Path("/dev/zero"))


def test_the_same_order_twice_is_one_order(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("order_id,quantity,seen\na,1,x\nb,2,x\na,1,y\na,1,z\n")
    file = read_orders(path)
    assert (list(file.orders), file.repeated) == (["a", "b"], 2)
    assert file.orders["a"].line == 2


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "orders.csv is empty"),
        (b"\n \n", "orders.csv is empty"),
        (gzip.compress(b"", mtime=0), "orders.csv is empty"),
        (b"order_id,quantity\n", "orders.csv has a header and no order after it"),
        (b"a,1\nb,2\n", "orders.csv, line 1: the header 'a,1' lacks the columns order_id and quantity"),
        (b"order_id,qty\na,1\n", "orders.csv, line 1: the header 'order_id,qty' lacks the column quantity"),
        (
            b"order_id;quantity\na;1\n",
            "orders.csv, line 1: the header 'order_id;quantity' lacks the columns order_id and quantity",
        ),
        (b"order_id,quantity,quantity\na,1,2\n", "orders.csv, line 1: the header names the column quantity 2 times"),
        (b"order_id,quantity\na,1\nb,0\n", f"orders.csv, line 3: quantity '0' {WHOLE}"),
        (b"order_id,quantity\na,-2\n", f"orders.csv, line 2: quantity '-2' {WHOLE}"),
        (b"order_id,quantity\na,two\n", f"orders.csv, line 2: quantity 'two' {WHOLE}"),
        (b"order_id,quantity\na,1.0\n", f"orders.csv, line 2: quantity '1.0' {WHOLE}"),
        (b"order_id,quantity\na,\n", f"orders.csv, line 2: quantity '' {WHOLE}"),
        ("order_id,quantity\na,\u0663\n".encode(), f"orders.csv, line 2: quantity '\u0663' {WHOLE}"),
        (b"order_id,quantity\na,1000000001\n", f"orders.csv, line 2: quantity '1000000001' {WHOLE}"),
        (b"order_id,quantity\na," + b"9" * 5_000 + b"\n", f"orders.csv, line 2: quantity '{'9' * 60}...' {WHOLE}"),
        (b"order_id,quantity\n,1\n", "orders.csv, line 2: order_id '' must have 1 to 256 characters"),
        (
            b"order_id,quantity\n" + b"a" * 257 + b",1\n",
            f"orders.csv, line 2: order_id '{'a' * 60}...' must have 1 to 256 characters",
        ),
        (
            b'order_id,quantity\n"a\x00b",1\n',
            "orders.csv, line 2: order_id 'a\\x00b' has characters that cannot be printed",
        ),
        (
            b'order_id,quantity\n"a\nb",1\n',
            "orders.csv, line 2: order_id 'a\\nb' has characters that cannot be printed",
        ),
        (b"order_id,quantity,sku\na,1,\n", "orders.csv, line 2: sku '' must have 1 to 256 characters"),
        (
            b"order_id,quantity\na,1\n\nb,2\na,3\n",
            "orders.csv, line 5: order_id 'a' has quantity 3 here and 1 in line 2",
        ),
        (
            b"order_id,quantity,customer_id\na,1,x\na,1,y\n",
            "orders.csv, line 3: order_id 'a' has customer_id 'y' here and 'x' in line 2",
        ),
        (
            b"order_id,quantity,sku\na,1,x\na,1,y\n",
            "orders.csv, line 3: order_id 'a' has sku 'y' here and 'x' in line 2",
        ),
        (b"order_id,quantity\na\n", "orders.csv, line 2: 1 fields, but the header has 2: 'a'"),
        (b"order_id,quantity\na,1,2\n", "orders.csv, line 2: 3 fields, but the header has 2: 'a,1,2'"),
        (
            b'order_id,quantity\na,1\n"b,2\n',
            "orders.csv, line 3: not a row of comma-separated values: unexpected end of data",
        ),
        (b"order_id,quantity\na,1\n\xff,2\n", "orders.csv, line 3: byte 0xff is not UTF-8"),
        ("order_id,quantity\na,1\n".encode("utf-16"), "orders.csv, line 1: byte 0xff is not UTF-8"),
        (
            gzip.compress(b"order_id,quantity\na,1\n", mtime=0)[:-10],
            "orders.csv is not a whole gzip file: Compressed file ended before the end-of-stream marker was reached",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_line_and_value(tmp_path: Path, content: bytes, sentence: str) -> None:
    assert refusal(tmp_path, content) == sentence


def test_a_sku_column_and_a_sku_for_all_exclude_each_other(tmp_path: Path) -> None:
    sentence = "orders.csv has a sku column, so one sku 'mug' for all its orders cannot be given"
    assert refusal(tmp_path, b"order_id,quantity,sku\na,1,cup\n", sku="mug") == sentence


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"nowhere\.csv does not exist$"):
        read_orders(tmp_path / "nowhere.csv")


def test_a_folder_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r" cannot be read: Is a directory$"):
        read_orders(tmp_path)
