"""The figures of the benchmark `shards`, computed from made-up sales and rates."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from statistics import fmean

import pytest
from rich.console import Console

from bench.display import display_on
from bench.micro.shards.cells import HELD_OUT, IN_PROCESSES, LANE, LONE, Cell, costs_of, predicted, simulated
from bench.micro.shards.host import order_id
from bench.micro.shards.measure import Measured, cell_figures, measure_masters, sale_figures, work_by_masters
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


def test_the_work_of_further_masters_is_a_line_through_the_medians() -> None:
    sales = {masters: [sale(masters, each_us=(400 + 50 * (masters - 1)) / masters)] * 3 for masters in (1, 2, 4)}
    work = work_by_masters(sales)
    parts = (work.client, work.one_master, work.each_further)
    assert parts == pytest.approx((0.0004, 0.0004, 0.00005))
    costs = work.costs(11)
    assert (costs.server, costs.beside) == pytest.approx((0.0004, 0.0005))
    assert costs.locked + costs.outside == pytest.approx(0.0008 + 2 * 0.0005)


def test_the_times_of_an_order_come_from_a_lone_worker_and_a_busy_segment() -> None:
    costs = costs_of(1 / 0.034, 1 / 0.031, client=0.0005, server=0.0003)
    assert (costs.locked, costs.outside) == pytest.approx((0.001, 0.003))
    assert predicted(LONE, costs) == pytest.approx(1 / 0.034)
    assert predicted(LANE, costs) == pytest.approx(1 / 0.031, rel=0.03)
    assert simulated(LONE, costs) == pytest.approx(1 / 0.034, rel=0.005)
    # Of three hand-overs two are at once, in the time of a lone call's work; those of other processes are calls.
    assert simulated(LANE, costs) == pytest.approx(3 / (3 * (0.032 + 0.0004) + 0.0016), rel=0.005)
    assert simulated(replace(LANE, processes=4), costs) == pytest.approx(1 / 0.034, rel=0.005)
    with pytest.raises(SegmentedError, match=r"^a worker sold no order in a cell: the machine is too busy to measure$"):
        costs_of(0.0, 1.0, client=0.1, server=0.1)


def test_the_largest_error_is_of_the_medians_and_no_held_out_cell_has_the_numbers_of_a_fitted_one() -> None:
    near, far = Cell(1, 4, 3, 20), Cell(2, 2, 3, 50)
    apart = Cell(1, 4, 12, 20, processes=3)
    found = Measured(
        rates={near: [100.0, 100.0, 100.0], far: [100.0, 100.0, 100.0], apart: [100.0, 200.0, 50.0]},
        predictions={near: [104.0, 90.0, 103.0], far: [80.0, 88.0, 130.0]},
        simulations={near: [101.0, 101.0, 101.0], far: [100.0, 100.0, 100.0], apart: [95.0, 180.0, 50.0]},
        cores={near: [0.1], far: [0.2], apart: [0.3]},
    )
    figures = {figure.name: round(figure.value, 3) for figure in cell_figures(found)}
    assert figures == {
        f"predicted / measured: {near.name}": 1.03,
        f"predicted / measured: {far.name}": 0.88,
        "largest error of a held-out cell": 0.12,
        f"simulated / measured: {near.name}": 1.01,
        f"simulated / measured: {far.name}": 1.0,
        "simulated / measured: 1 master x 4 segments, 12 workers in 3 processes, hold 20 ms": 0.95,
        "largest error of the simulation": 0.05,
    }
    assert {cell.hold_ms for cell in (*HELD_OUT, *IN_PROCESSES)}.isdisjoint({LONE.hold_ms, LANE.hold_ms})
    assert all(cell.workers % cell.processes == 0 for cell in IN_PROCESSES)


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
