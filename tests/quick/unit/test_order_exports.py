"""Order files as shops export them: known by their header, and sold or refused with the options to type."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

import openpyxl
import pytest

from segmented.celery.selling.order_formats import Reading
from segmented.celery.selling.orders_file import Fate, read_orders
from segmented.cli.main import run
from segmented.errors import InvalidInput

SHOPIFY: Final = """\
\ufeffName,Email,Financial Status,Cancelled at,Lineitem quantity,Lineitem name,Lineitem sku,Notes
#1001,ann@example.com,paid,,2,"Hoodie, black",HOOD,"two
lines"
#1001,ann@example.com,,,1,Cap,CAP,
#1001,ann@example.com,,,3,"Hoodie, grey",HOOD,
#1002,bob@example.com,refunded,,4,Hoodie,HOOD,
#1003,cid@example.com,paid,2026-11-20,4,Hoodie,HOOD,
"""
WOOCOMMERCE: Final = """\
Order Number,Order Status,SKU,Item #,Quantity (- Refund),Item Cost
2001,Completed,HOOD,1,2,20.00
2002,Refunded,HOOD,1,0,20.00
2003,Processing,HOOD,1,-1,20.00
"""
EVENTBRITE: Final = """\
Order #,Quantity,Ticket Type,Attendee #,Order Type,Attendee Status
3001,1,VIP,5001,Eventbrite Completed,Attending
3001,1,VIP,5002,Eventbrite Completed,Checked In
3002,1,VIP,5003,Refunded,Not Attending
"""
STRIPE: Final = """\
id,Created date (UTC),Amount,Amount Refunded,Currency,Status
ch_1,2026-11-20 10:00:00,31.00,0.00,eur,Paid
ch_2,2026-11-20 10:01:00,31.00,31.00,eur,Refunded
ch_3,2026-11-20 10:02:00,31.00,10.00,eur,Paid
ch_4,2026-11-20 10:03:00,31.00,0.00,eur,Failed
"""
AMAZON: Final = """\
amazon-order-id\tpurchase-date\torder-status\tsku\titem-status\tquantity
111-1\t2026-11-20\tShipped\tMUG\tShipped\t2
111-2\t2026-11-20\tCancelled\tMUG\tCancelled\t0
"""
AMAZON_NEW: Final = """\
order-id\torder-item-id\tpurchase-date\tsku\tquantity-purchased
111-1\t1\t2026-11-20\tMUG\t2
111-1\t2\t2026-11-20\tMUG\t1
"""
WALMART: Final = """\
PO#,Order#,Order Date,Line#,Status,Qty,SKU
1,4001,2026-11-20,1,Shipped,2,MUG
1,4001,2026-11-20,2,Cancelled,1,MUG
"""
OLIST: Final = """\
"order_id","order_item_id","product_id","seller_id","price"
"e4","1","mug","s","58.90"
"e5","1","mug","s","58.90"
"e5","2","mug","s","58.90"
"""
RETAIL: Final = """\
InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country
536365,85123A,LANTERN,6,12/1/2010 8:26,2.55,17850.0,United Kingdom
536365,71053,HEART,6,12/1/2010 8:26,3.39,17850.0,United Kingdom
C536379,D,Discount,-1,12/1/2010 9:41,27.5,14527,United Kingdom
A563185,B,Adjust bad debt,1,8/12/2011 14:50,11062.06,,United Kingdom
"""
SHOWN: Final = " (--check shows each)"
BY_ROW: Final = "the header lacks the column quantity: add --quantity 1 if each row is one unit"


def read(folder: Path, text: str, reading: Reading) -> tuple[dict[str, tuple[int, str]], str]:
    """Return quantity and sku by order id, and how the file was read."""
    path = folder / "export.csv"
    path.write_text(text, encoding="utf-8")
    file = read_orders(path, reading)
    return {one.order.order_id: (one.order.quantity, one.sku) for one in file.orders.values()}, file.notes[0]


@pytest.mark.parametrize(
    ("text", "needed", "reading", "sold", "name"),
    [
        (
            SHOPIFY,
            "add --split-skus --sum-lines --skip-refunds (read as shopify;",
            Reading(sku="HOOD", sum_lines=True, skip_refunds=True),
            {"#1001": (5, "HOOD")},
            "shopify: order_id 'Name', sku 'Lineitem sku', quantity 'Lineitem quantity'",
        ),
        (
            SHOPIFY,
            "add --sum-lines --skip-refunds (read as shopify;",
            Reading(map=("sku=",), where=("Financial Status=paid", "Cancelled at="), sum_lines=True),
            {"#1001": (6, "default")},
            "shopify: order_id 'Name', quantity 'Lineitem quantity'",
        ),
        (
            WOOCOMMERCE,
            "line 3 is a refund or a cancelled order: Order Status 'Refunded', as 1 further line: add --skip-refunds",
            Reading(skip_refunds=True),
            {"2001": (2, "HOOD")},
            "woocommerce: order_id 'Order Number', sku 'SKU', quantity 'Quantity (- Refund)'",
        ),
        (
            EVENTBRITE,
            "add --sum-lines --skip-refunds",
            Reading(sum_lines=True, skip_refunds=True),
            {"3001": (2, "VIP")},
            "eventbrite: order_id 'Order #', sku 'Ticket Type', quantity 'Quantity'",
        ),
        (STRIPE, BY_ROW, Reading(quantity=1, skip_refunds=True), {"ch_1": (1, "default")}, "stripe: order_id 'id'"),
        (
            AMAZON,
            "add --skip-refunds",
            Reading(skip_refunds=True),
            {"111-1": (2, "MUG")},
            "amazon: order_id 'amazon-order-id', sku 'sku', quantity 'quantity'",
        ),
        (
            AMAZON_NEW,
            "add --sum-lines",
            Reading(sum_lines=True),
            {"111-1": (3, "MUG")},
            "amazon: order_id 'order-id', sku 'sku', quantity 'quantity-purchased'",
        ),
        (
            WALMART,
            "line 3 is a refund or a cancelled order: Status 'Cancelled'",
            Reading(where=("status!=cancelled",)),
            {"4001": (2, "MUG")},
            "walmart: order_id 'Order#', sku 'SKU', quantity 'Qty'",
        ),
        (
            OLIST,
            BY_ROW,
            Reading(quantity=1, sum_lines=True),
            {"e4": (1, "mug"), "e5": (2, "mug")},
            "olist: order_id 'order_id', sku 'product_id'",
        ),
        (
            RETAIL,
            (
                "line 4 is a refund or a cancelled order: InvoiceNo 'C536379' begins with C, as 1 further line: "
                "add --split-skus --skip-refunds"
            ),
            Reading(sku="71053", skip_refunds=True),
            {"536365": (6, "71053")},
            "online-retail: order_id 'InvoiceNo', sku 'StockCode', quantity 'Quantity'",
        ),
    ],
    ids=[
        "shopify",
        "one-stock",
        "woocommerce",
        "eventbrite",
        "stripe",
        "amazon",
        "amazon-new",
        "walmart",
        "olist",
        "online-retail",
    ],
)
def test_an_export_is_sold_with_the_options_that_its_refusal_names(
    tmp_path: Path, text: str, needed: str, reading: Reading, sold: dict[str, tuple[int, str]], name: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        read(tmp_path, text, Reading(map=tuple(one for one in reading.map if one == "sku=")))
    assert needed in str(refused.value)
    assert read(tmp_path, text, reading) == (sold, f"read as {name} (--format or --map changes it)")


@pytest.mark.parametrize(
    ("text", "reading", "sentence"),
    [
        ("order_id,quantity\na,1\n", Reading(map=("a=b",)), "--map 'a=b': the field 'a' is not one of order_id, quan"),
        ("order_id,quantity\na,1\n", Reading(map=("Name",)), "--map 'Name' should be FIELD=COLUMN,...; the fields"),
        ("order_id,quantity\na,1\n", Reading(map=("sku=Art",)), "there is no column 'Art' for --map sku=; the header"),
        ("order_id,quantity\na,1\n", Reading(where=("x=1",)), "--where 'x=1' should be COLUMN=VALUE or COLUMN!=VALUE"),
        ("order_id,quantity\na,1\n", Reading(where=("Quantity=2",)), "no order is left to sell: 1 left out as --where"),
        ("order_id,quantity\na,1\n", Reading(format="x"), "--format 'x' is not known: it is one of own, shopify, woo"),
        ("order_id,quantity\na,1\n", Reading(format="stripe"), "it is not the header of stripe, which has 'id'"),
        ("order_id,quantity\na,1\n", Reading(delimiter="ab"), "--delimiter 'ab' is not one character, nor one of"),
        ("order_id,quantity\na,1\n", Reading(encoding="hex"), "--encoding 'hex' is not a text encoding that Python"),
        ("order_id,quantity\na,1\n", Reading(sheet="x"), "is not an Excel file, so it has no --sheet 'x'"),
        ("order_id,quantity,sku\na,1,m\n", Reading(sku="n"), "has no order with --sku n: its skus are 'm'"),
        (
            "order_id,n\na,1\n",
            Reading(map=("quantity=n",), quantity=1),
            "--quantity 1 and --map quantity=n both say the units: give one",
        ),
        ("order_id,quantity\na,-1\n", Reading(quantity=1), "line 2 is a refund or a cancelled order: quantity '-1'"),
        ("order_id,quantity\na,1\n", Reading(encoding="punycode"), "line 1: it is not punycode: "),
        ("id,n\na,1\na,1\n", Reading(map=("order_id=id,quantity=n",)), "line 3 is a second line of order_id 'a'"),
        (
            EVENTBRITE.replace("5002,Eventbrite Completed,Checked In", "5001,Eventbrite Completed,Attending"),
            Reading(skip_refunds=True),
            "line 3 is a second line of order_id '3001'",
        ),
        (
            SHOPIFY.replace("refunded", "partially_refunded"),
            Reading(sku="HOOD", sum_lines=True, skip_refunds=True),
            "still has: add --where 'Financial Status!=partially_refunded' (read as shopify;",
        ),
        (
            "order_number,status,line_items\n1,completed,sku:A|quantity:2;sku:B|quantity:1\n",
            Reading(),
            "line 1: the column 'line_items' lists the items of an order in one cell: export a line per item",
        ),
        ("ticket\na\na\n", Reading(map=("order_id=ticket",), quantity=1), "line 3 is a second line of order_id 'a'"),
    ],
)
def test_an_option_that_does_not_fit_the_file_is_refused(
    tmp_path: Path, text: str, reading: Reading, sentence: str
) -> None:
    path = tmp_path / "orders.csv"
    path.write_text(text)
    with pytest.raises(InvalidInput) as refused:
        read_orders(path, reading)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (SHOPIFY, "--split-skus --sum-lines --skip-refunds"),
        (RETAIL, "--split-skus --skip-refunds"),
        (RETAIL + RETAIL.splitlines()[2] + "\n", "--split-skus --skip-refunds --sum-lines"),
    ],
    ids=["shopify", "online-retail", "a second line"],
)
def test_an_order_of_several_skus_is_refused_or_sold_sku_by_sku(tmp_path: Path, text: str, options: str) -> None:
    path = tmp_path / "export.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=f"add {options} "):
        read_orders(path)
    orders = read_orders(path, Reading(split_skus=True, sum_lines=True, skip_refunds=True)).orders
    assert {key: one.order.quantity for key, one in orders.items()} == {
        SHOPIFY: {("HOOD", "#1001"): 5, ("CAP", "#1001"): 1},
        RETAIL: {("85123A", "536365"): 6, ("71053", "536365"): 6},
    }.get(text, {("85123A", "536365"): 6, ("71053", "536365"): 12})


@pytest.mark.parametrize(
    ("columns", "status"),
    [
        *(
            ("Name,Lineitem quantity,Financial Status", status)
            for status in ("pending", "unpaid", "authorized", "partially_paid")
        ),
        *(("Order Number,Quantity (- Refund),Order Status", status) for status in ("On hold", "Pending payment")),
        ("Order #,Quantity,Attendee #,Order Type", "Pending"),
        ("id,Created (UTC),Amount Refunded,Status", "Pending"),
        ("amazon-order-id,quantity,order-status", "Pending"),
        ("order_id,quantity,status", "awaiting payment"),
    ],
)
def test_an_unpaid_order_is_sold_or_left_out_as_asked_and_never_silently(
    tmp_path: Path, columns: str, status: str
) -> None:
    path, column = tmp_path / "export.csv", columns.rpartition(",")[2]
    filled = "".join(f",{0 if name == 'Amount Refunded' else 1}" for name in columns.split(",")[1:-1])
    path.write_text(f"{columns}\npaid{filled},paid\nopen{filled},{status}\nback{filled},Refunded\n")
    usual = Reading(skip_refunds=True, quantity=1 if columns.startswith("id") else None)
    said = f"line 3 is not paid: {column} {status!r} (--unpaid sell sells it all the same): add --unpaid skip ("
    with pytest.raises(InvalidInput, match=re.escape(said)):
        read_orders(path, usual)
    sold, without = (read_orders(path, replace(usual, unpaid=choice)) for choice in ("sell", "skip"))
    assert [[one.order.order_id for one in file.orders.values()] for file in (sold, without)] == [
        ["paid", "open"],
        ["paid"],
    ]
    assert f"lines not sold: 1 left out as unpaid, 1 left out as refunds{SHOWN}" in without.notes
    other = (f"{column}!={status}",)
    assert read_orders(path, replace(usual, where=other)).orders == without.orders
    with pytest.raises(InvalidInput, match="line 4 is a refund or a cancelled order: "):
        read_orders(path, replace(usual, where=other, skip_refunds=False))


def test_rows_and_columns_that_excel_hides_are_read(tmp_path: Path) -> None:
    path = tmp_path / "orders.xlsx"
    book = openpyxl.Workbook()
    sheet = book.active
    for row in (["order_id", "quantity", "note"], ["a", 1, ""], ["b", 2, ""], [], ["c", 3, ""]):
        sheet.append(row)
    for number in (3, 4):
        sheet.row_dimensions[number].hidden = True
    sheet.column_dimensions["B"].hidden = True
    book.create_sheet("other").row_dimensions[2].hidden = True
    book.save(path)
    file = read_orders(path)
    assert [one.order.quantity for one in file.orders.values()] == [1, 2, 3]


def test_an_excel_file_is_read_from_its_only_sheet_or_the_named_one(tmp_path: Path) -> None:
    path = tmp_path / "orders.xlsx"
    book = openpyxl.Workbook()
    book.active.title = "Year 2010"
    book.active.append(["Invoice", "StockCode", "Quantity", "Customer ID"])
    book.active.append([536365, "85123A", 6.0, 17850.0])
    book.active.append([])
    book.active.append([1234567890123456, "85123A", 1, None])
    book.create_sheet("empty")
    book.save(path)
    with pytest.raises(InvalidInput, match=r"line 4: order_id '1.23456789012346E\+15': a spreadsheet has rounded it"):
        read_orders(path)
    book.active.delete_rows(4)
    book.save(path)
    assert [(one.order.order_id, one.order.quantity, one.line) for one in read_orders(path).orders.values()] == [
        ("536365", 6, 2)
    ]
    book["empty"].append(["Invoice", "StockCode", "Quantity"])
    book.save(path)
    with pytest.raises(InvalidInput, match=r"has 2 sheets, 'Year 2010', 'empty': name one with --sheet$"):
        read_orders(path)
    assert len(read_orders(path, Reading(sheet="Year 2010")).orders) == 1


def test_check_shows_each_line_and_sells_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("order_id,quantity,note\na,1,x\na,1,x\nb,-1,\nc,two,\nd,3,\na,2,\nTotal,9,\n")
    assert run(["sell", str(path), "--check", "--skip-refunds", "--sum-lines"]) == 2
    printed, errors = capsys.readouterr()
    assert [Fate(int(line), *rest) for line, *rest in (row.split("\t") for row in printed.splitlines())] == [
        Fate(2, "a", "", "1", "sold"),
        Fate(3, "a", "", "1", "sold: summed into line 2"),
        Fate(4, "b", "", "-1", "left out: refunds: quantity '-1' is negative"),
        Fate(5, "c", "", "two", "refused: quantity 'two' must be a whole number from 1 to 1,000,000,000"),
        Fate(6, "d", "", "3", "sold"),
        Fate(7, "a", "", "2", "sold: summed into line 2"),
        Fate(8, "Total", "", "9", "left out: a total: 'Total'"),
    ]
    assert errors.endswith("line 5: quantity 'two' must be a whole number from 1 to 1,000,000,000\n")
    path.write_text(path.read_text().replace("two", "5"))
    assert run(["sell", str(path), "--check", "--skip-refunds", "--sum-lines"]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "would sell 3 orders of 12 units, by sku: default 12"
    assert run(["sell", str(path), "--stock", "5"]) == 2
    assert capsys.readouterr().err == "segmented: --segments K is missing: it is needed for a sale, not for --check\n"
