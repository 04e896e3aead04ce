from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from segmented.celery.selling.order_formats import Reading
from segmented.celery.selling.servers import Choices
from segmented.errors import InvalidInput

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


@pytest.mark.parametrize(("stock", "segment_count"), [(1, 1), (1, 4_096), (1_000_000_000_000, 1)])
def test_the_ends_of_the_ranges_are_accepted(stock: int, segment_count: int) -> None:
    replace(CHOICES, stock=stock, segment_count=segment_count).check()


def test_trying_whether_a_file_can_be_written_leaves_it_as_it_is(tmp_path: Path) -> None:
    kept = tmp_path / "results.csv"
    kept.write_text("kept")
    replace(CHOICES, results=kept, json=tmp_path / "new.json", force=True).check()
    assert [path.name for path in tmp_path.iterdir()] == ["results.csv"]
    assert kept.read_text() == "kept"


@pytest.mark.parametrize(
    ("changes", "is_kept"),
    [
        ({}, False),
        ({"data": Path("shop")}, True),
        ({"url": "redis://host"}, False),
        ({"url": "redis://host", "database": "sqlite:///x"}, True),
    ],
)
def test_servers_are_kept_in_a_data_folder_or_where_both_are_the_users(
    changes: dict[str, object], *, is_kept: bool
) -> None:
    assert replace(CHOICES, **changes).is_kept is is_kept  # type: ignore[arg-type]  # as above


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
