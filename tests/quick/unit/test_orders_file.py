"""Files of orders: what is read and refused, and how large files are divided."""

import gzip
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

from segmented.celery.selling.order_formats import Reading
from segmented.celery.selling.orders_file import PLAIN, FileOrder, read_orders
from segmented.errors import InvalidInput
from segmented.models import Order
from segmented.stock import spill
from segmented.stock.spill import Spill
from tests.support.paths import CDNOW

SUM: Final = "add --sum-lines (--check shows each line)"
WHOLE: Final = "must be a whole number from 1 to 1,000,000,000"


def refusal(folder: Path, content: bytes, reading: Reading = PLAIN) -> str:
    """Return the one sentence with which a file is refused, its path shortened to its name."""
    path = folder / "orders.csv"
    path.write_bytes(content)
    with pytest.raises(InvalidInput) as refused:
        read_orders(path, reading)
    return str(refused.value).replace(f"{folder}/", "")


def test_the_real_file_has_69659_orders_of_167881_units() -> None:
    file = read_orders(CDNOW)
    assert len(file.orders) == 69_659
    assert sum(line.order.quantity for line in file.orders.values()) == 167_881
    assert max(line.order.quantity for line in file.orders.values()) == 99
    assert len({line.order.customer_id for line in file.orders.values()}) == 23_570
    assert (file.repeated, file.ignored_columns, file.skus) == (0, ("ordered_on",), ("default",))
    assert file.orders["default", "cdnow-00002"] == FileOrder(Order("cdnow-00002", 2, "4"), "default", 3)


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
        b"sep=;\r\norder_id;quantity\r\na;1\r\nb;2\r\n",
        b"order_id\tquantity\na\t1.0\nb\t2.00\n",
        b"order_id|quantity\na|1\nb|2\n",
        "order_id,quantity\na,1\nb,2\n".encode("utf-16"),
        b"order_id,quantity,,\na,1\n,,,\nb,2,,,,\n".replace(b"a,1", b"a,1,,"),
        b"order_id,quantity,price\na,1,5\nb,2,5\nTotal,3\n",
        b"order_id,quantity,price\na,1,5\nb,2,5\n,,Total:\n",
    ],
    ids=[
        "byte order mark",
        "CRLF",
        "quoted",
        "blank lines",
        "spaces and capitals",
        "no last newline",
        "gzip",
        *["sep", "tab", "pipe", "UTF-16", "empty", "total", "label"],
    ],
)
def test_what_spreadsheets_and_exports_write_is_read(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "orders.csv"
    path.write_bytes(content)
    file = read_orders(path, Reading(sku="mug"))
    assert [line.order for line in file.orders.values()] == [Order("a", 1), Order("b", 2)]
    assert file.skus == ("mug",)


def test_a_small_gzip_file_that_unpacks_to_more_than_allowed_is_refused_on_the_way(tmp_path: Path) -> None:
    row = b"o,1," + b"x" * 1_019 + b"\n"
    rows = b"order_id,quantity,note\n" + row * 1_025
    sentence = "orders.csv, line 1025: the file is larger than 1 MiB: allow more with --size-max MIB"
    for content in (rows, gzip.compress(rows, mtime=0)):
        path = tmp_path / "orders.csv"
        path.write_bytes(content)
        with pytest.raises(InvalidInput) as refused:
            read_orders(path, Reading(size_max=1))
        assert str(refused.value).replace(f"{tmp_path}/", "") == sentence
        assert read_orders(path, Reading(size_max=2)).repeated == 1_024


def test_a_file_without_line_ends_is_refused_at_its_first_65_536_bytes() -> None:
    with pytest.raises(InvalidInput, match=r"^/dev/zero, line 1: it is longer than 65,536 bytes: is this a file of"):
        read_orders(Path("/dev/zero"))


def test_the_same_order_twice_is_one_order(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("order_id,quantity,seen\na,1,x\nb,2,x\na,1,x\na,1,x\n")
    file = read_orders(path)
    assert ([line.order.order_id for line in file.orders.values()], file.repeated) == (["a", "b"], 2)
    assert file.orders["default", "a"].line == 2


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "orders.csv is empty"),
        (b"\n \n", "orders.csv is empty"),
        (gzip.compress(b"", mtime=0), "orders.csv is empty"),
        (b"order_id,quantity\n", "orders.csv has a header and no order after it"),
        (
            b"a,1\nb,2\n",
            (
                "orders.csv, line 1: the header lacks the columns order_id and quantity: add --map order_id=COLUMN,"
                "quantity=COLUMN, or --map order_id=COLUMN --quantity 1 if each row is one unit; the header is 'a, 1'"
            ),
        ),
        (
            b"Bestellnr;SKU;Menge je Zeile\na;m;1\n",
            (
                "orders.csv, line 1: the header lacks the columns order_id and quantity: add --map order_id=Bestellnr,"
                "quantity='Menge je Zeile',sku=SKU; the header is 'Bestellnr, SKU, Menge je Zeile'"
            ),
        ),
        (b"order_id,quantity,quantity\na,1,2\n", "orders.csv, line 1: the header names the column quantity 2 times"),
        (
            b"order_id,quantity\na,1\nb,0\nc,-2\n",
            (
                "orders.csv, line 3 is a refund or a cancelled order: quantity '0' leaves nothing to sell, "
                "as 1 further line: add --skip-refunds (--check shows each line)"
            ),
        ),
        (b"order_id,quantity\na,two\n", f"orders.csv, line 2: quantity 'two' {WHOLE}"),
        (b"order_id,quantity\na,1.000\n", f"orders.csv, line 2: quantity '1.000' {WHOLE}"),
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
            f"orders.csv, line 5 is a second line of order_id 'a', after line 2: {SUM}",
        ),
        (
            b"order_id,quantity,note\na,1,x\na,1,y\n",
            f"orders.csv, line 3 is a second line of order_id 'a', after line 2: {SUM}",
        ),
        (
            b"order_id,quantity,sku\na,1,x\na,1,y\n",
            (
                "orders.csv, line 3: order_id 'a' has sku 'y' here and 'x' in line 2: "
                "add --split-skus (--check shows each line)"
            ),
        ),
        (b"order_id,quantity\na\n", "orders.csv, line 2: 1 field, but the header has 2: 'a'"),
        (b"order_id,quantity\na,1,2\n", "orders.csv, line 2: 3 fields, but the header has 2: 'a,1,2'"),
        (
            b'order_id,quantity\na,1\n"b,2\n',
            "orders.csv, line 3: not a row of comma-separated values: unexpected end of data",
        ),
        (
            b"order_id,quantity\na,1\n\xff,2\n",
            "orders.csv, line 3: byte 0xff is not UTF-8: name its encoding, as --encoding cp1252",
        ),
        (
            "order_id,quantity\na,1\n".encode("utf-16-le"),
            "orders.csv, line 1: it has NUL characters: if it is UTF-16, add --encoding utf-16-le",
        ),
        (
            b"order_id,quantity\n1.12E+11,1\n",
            (
                "orders.csv, line 2: order_id '1.12E+11': a spreadsheet has rounded it: format the column as text, and "
                "export it again"
            ),
        ),
        *(
            (
                f"order_id,quantity,{name}\na,1,4.00638E+12\n".encode(),
                (
                    f"orders.csv, line 2: {name} '4.00638E+12': a spreadsheet has rounded it: format the column as "
                    "text, and export it again"
                ),
            )
            for name in ("sku", "customer_id")
        ),
        (b"\xd0\xcf\x11\xe0", "orders.csv is an Excel file of the old kind, .xls: save it as .xlsx or CSV"),
        (
            b"PK\x03\x04orders",
            "orders.csv is a zip file, but not an Excel file that can be read: BadZipFile",
        ),
        (
            gzip.compress(b"order_id,quantity\na,1\n", mtime=0)[:-10],
            "orders.csv is not a whole gzip file: Compressed file ended before the end-of-stream marker was reached",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_line_and_value(tmp_path: Path, content: bytes, sentence: str) -> None:
    assert refusal(tmp_path, content) == sentence


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"nowhere\.csv does not exist$"):
        read_orders(tmp_path / "nowhere.csv")


@pytest.mark.parametrize("lines_max", [1, 7, 100_000])
def test_each_order_has_its_lines_in_order_in_one_part(monkeypatch: pytest.MonkeyPatch, lines_max: int) -> None:
    monkeypatch.setattr(spill, "LINES_MAX", lines_max)
    monkeypatch.setattr(spill, "CHUNK_LINES", 0)
    kept = Spill(20_000)
    expected = defaultdict(list)
    for step in range(40):
        head, lines = f"kind {step}", [f"order-{(7 * step + index) % 50}é\t{step}" for index in range(5)]
        kept.add(head, lines)
        for line in lines:
            expected[line.split("\t")[0]].append((head, line))
    found: list[defaultdict[str, list[tuple[str, str]]]] = [defaultdict(list) for _ in range(kept.part_count)]
    for number in range(kept.part_count):
        for head, line in kept.read(number):
            found[number][line.split("\t")[0]].append((head, line))
    assert {order_id: lines for part in found for order_id, lines in part.items()} == expected
    assert sum(map(len, found)) == len(expected) == 50
    assert [list(kept.read(number)) for number in range(kept.part_count)] == [
        list(kept.read(number)) for number in range(kept.part_count)
    ]
