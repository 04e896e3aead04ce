"""The figures of the benchmark `shards`, computed from made-up sales and rates."""

from __future__ import annotations

from collections import Counter
from statistics import fmean

import pytest
from rich.console import Console

from bench.display import display_on
from bench.micro.shards.cells import LANE, LONE, costs_of, order_id, predicted
from bench.micro.shards.measure import measure_masters, sale_figures
from bench.micro.shards.sale import Part, Sale
from segmented.errors import InvalidInput, SegmentedError
from segmented.stock.sharded.opening import home_of


def sale(masters: int, *, each_us: float, transfers: int = 0) -> Sale:
    """Return a sale of 100 and 10 orders in which an order costs each master so many microseconds."""
    operations = Counter({"Grant": 100, "Confirm": 100, "LookAtShard": 2 * masters})
    early = Part(
        orders=100,
        servers_us=(each_us * 100,) * masters,
        client_us=40_000,
        operations=operations,
        commands=Counter({"evalsha": 200, "hset": 500}),
        transfers=transfers,
        messages=100 * (masters - 1),
    )
    late = Part(10, (5.0,) * masters, 50, Counter(), Counter({"evalsha": 30, "eval": 5, "delifeq": 5}), 2, 0)
    return Sale(masters, early, late, 2_000)


def test_counts_and_times_are_divided_by_the_orders_of_their_part() -> None:
    sales = {1: [sale(1, each_us=400)] * 3, 4: [sale(4, each_us=150, transfers=6)] * 3}
    found = {figure.name: figure for figure in sale_figures(sales, 4)}
    values = {name.removeprefix("4 masters: "): figure.value for name, figure in found.items()}
    assert values == {
        "server CPU an order": 600,
        "CPU of the most loaded one an order": 150,
        "server CPU an order / with 1": 1.5,
        "client CPU an order": 400,
        "commands an order, until 90 % is sold": 2,
        "commands for other shards an order, until 90 % is sold": 0.08,
        "commands an order, of the last 10 %": 4,
        "commands for other shards an order, of the last 10 %": 0,
        "messages to other masters an order, until 90 % is sold": 3,
        "transfers an order, until 90 % is sold": 0.06,
        "transfers an order, of the last 10 %": 0.2,
    }
    broken = found["4 masters: transfers an order, until 90 % is sold"]
    assert (broken.is_promise, broken.is_within) == (True, False)


def test_the_times_of_an_order_come_from_a_lone_worker_and_a_busy_segment() -> None:
    costs = costs_of(1 / 0.034, 1 / 0.031, client=0.0005, server=0.0003)
    assert (costs.locked, costs.outside) == pytest.approx((0.001, 0.003))
    assert predicted(LONE, costs) == pytest.approx(1 / 0.034)
    assert predicted(LANE, costs) == pytest.approx(1 / 0.031, rel=0.03)
    with pytest.raises(SegmentedError, match=r"^a worker sold no order in a cell: the machine is too busy to measure$"):
        costs_of(0.0, 1.0, client=0.1, server=0.1)


def test_orders_of_a_cell_are_at_home_in_random_shards() -> None:
    numbered = [len({home_of(f"{worker}-{number}", 8) for worker in range(8)}) for number in range(100)]
    assert set(numbered) == {8}  # no two of eight workers ever met
    homes = [len({home_of(order_id(), 8) for _ in range(8)}) for _ in range(4_000)]
    assert fmean(homes) == pytest.approx(8 * (1 - (7 / 8) ** 8), abs=0.15)  # 5.25; ten times its standard deviation


def test_no_server_can_be_named() -> None:
    with pytest.raises(
        InvalidInput, match=r"^--url does not fit: bench shards starts clusters of 1 to 8 masters of its"
    ):
        measure_masters("redis://localhost", display_on(Console()))
