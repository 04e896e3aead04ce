"""`segmented advise` as it is typed: times, ranges, tables and JSON. Nothing here needs a server."""

from __future__ import annotations

import json

import pytest

from segmented.cli.main import run

ARTICLE = ["advise", "--hold", "20ms", "--workers", "32", "--stock", "10000", "--quantity", "1-5"]


def written(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(list(words))
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_the_advice_comes_first_then_its_reasons_then_the_alternatives(capsys: pytest.CaptureFixture[str]) -> None:
    code, shown, wrong = written(capsys, *ARTICLE, "--round-trip", "1ms")
    advice, reasons, table = (part.splitlines() for part in shown.split("\n\n"))
    assert (code, wrong) == (0, "")
    assert advice == [
        "Yes: split the stock into 31 segments.",
        "Expect 1,409 to 1,455 orders/s, and a stock that lasts 2.29 s; nobody waits for a segment.",
    ]
    assert len(reasons) == 4
    assert all(reason.startswith("- ") and reason.endswith(".") for reason in reasons)
    assert table[0].split("\t") == ["1", "48", "650 ms", "853 ms", "70 s", "segments"]
    assert table[-3].split("\t") == ["31 *", "1,455", "0 ms", "0 ms", "2.29 s", "workers"]
    assert table[-1].split("\t") == ["no lock", "1,455", "0 ms", "0 ms", "2.29 s", "workers"]


def test_what_is_assumed_is_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    said = "- The round trip of 500 us is an assumption; --measure finds it for your server.\n"
    assert said in written(capsys, *ARTICLE)[1]
    assert said not in written(capsys, *ARTICLE, "--round-trip", "1ms")[1]


def test_json_has_the_workload_the_advice_and_every_prediction(capsys: pytest.CaptureFixture[str]) -> None:
    code, shown, _ = written(capsys, *ARTICLE, "--servers", "3", "--round-trip", "1ms", "--json", "-")
    found = json.loads(shown)
    assert code == 0
    assert found["workload"]["hold"] == 0.02
    assert (found["workload"]["quantity"], found["workload"]["servers"]) == ([1, 5], 3)
    assert (found["segments"], found["is_locked"], found["measured"]) == (33, True, None)
    assert [each["segments"] for each in found["alternatives"]] == [1, 3, 6, 12, 21, 33, 51]
    assert found["expected"] in found["alternatives"]
    assert len(found["reasons"]) == 5


@pytest.mark.parametrize(
    ("typed", "seconds"),
    [("20ms", 0.02), ("1.5s", 1.5), ("300us", 0.0003), ("0ms", 0), ("2 ms", 0.002), ("1min", 60)],
)
def test_times_have_a_unit(capsys: pytest.CaptureFixture[str], typed: str, seconds: float) -> None:
    words = ["advise", "--hold", typed, "--workers", "4", "--stock", "100", "--json", "-"]
    assert json.loads(written(capsys, *words)[1])["workload"]["hold"] == pytest.approx(seconds)


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


def test_work_that_may_overlap_is_answered_with_no_lock(capsys: pytest.CaptureFixture[str]) -> None:
    _, shown, _ = written(capsys, *ARTICLE, "--may-overlap")
    assert shown.splitlines()[0] == "No: one segment, without its lock."


def test_a_wrong_value_is_quoted_and_a_missing_option_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    said = "segmented: Invalid value for '--stock': 'ten' should be a valid integer\n"
    assert written(capsys, *ARTICLE, "--stock", "ten") == (2, "", said)
    said = "segmented: Missing option '--hold'.\n"
    assert written(capsys, "advise", "--workers", "4", "--stock", "100") == (2, "", said)
