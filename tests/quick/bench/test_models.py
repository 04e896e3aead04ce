from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from bench.analysis.measured import cells_of
from bench.analysis.model_error import any_free_lane, ceiling, random_lane
from bench.analysis.usl import Fit, Law, NoFit, fit
from tests.support.bench.session import whole_session

COUNTS = st.integers(1, 60)
THINKING = st.floats(0, 1)
CLIENTS = (1, 2, 4, 8, 16, 32, 64, 128)
LAW = Law(gamma=50.0, alpha=0.02, beta=0.0004)


def test_as_many_clients_as_random_lanes_sell_half_of_the_ceiling() -> None:
    assert random_lane(1, 1, service=0.02) == pytest.approx(50)
    assert random_lane(16, 16, service=0.02) / ceiling(16, 16, service=0.02) == pytest.approx(16 / 31)
    assert random_lane(1_000, 1_000, service=1.0) == pytest.approx(1_000 * 1_000 / 1_999)


@given(clients=COUNTS, lanes=COUNTS)
def test_random_lanes_without_thinking_have_the_product_form(clients: int, lanes: int) -> None:
    assert random_lane(clients, lanes, service=2.0) == pytest.approx(lanes / 2 * clients / (clients + lanes - 1))


@given(clients=COUNTS, lanes=COUNTS, thinking=THINKING)
def test_no_model_exceeds_the_ceiling_and_a_free_lane_is_never_below_a_random_one(
    clients: int, lanes: int, thinking: float
) -> None:
    free = any_free_lane(clients, lanes, service=0.5, thinking=thinking)
    drawn = random_lane(clients, lanes, service=0.5, thinking=thinking)
    above = 1 + 1e-9
    assert drawn <= free * above
    bound = min(lanes / 0.5, clients / (0.5 + thinking))  # which constant holds approach (Denning and Buzen, 1978)
    assert free <= bound * above
    assert bound <= ceiling(clients, lanes, service=0.5)


def test_a_free_lane_has_closed_forms_at_the_ends() -> None:
    assert any_free_lane(1, 1, service=0.02, thinking=0.005) == pytest.approx(40)
    assert any_free_lane(8, 16, service=0.02, thinking=0.005) == pytest.approx(8 / 0.025)
    two = any_free_lane(2, 1, service=1.0, thinking=1.0)
    assert two == pytest.approx(4 / 5)  # p0 = 1 / (1 + 2 + 2)
    assert two == pytest.approx(random_lane(2, 1, service=1.0, thinking=1.0))  # one lane is one lane
    assert any_free_lane(500, 20, service=0.02, thinking=0.0001) == pytest.approx(1_000)


def test_a_law_is_recovered_from_its_own_points() -> None:
    found = fit({number: [LAW.rate(number)] * 3 for number in CLIENTS}, resamples=20)
    assert isinstance(found, Fit)
    assert (found.law.gamma, found.law.alpha, found.law.beta) == pytest.approx((50, 0.02, 0.0004))
    assert found.law.peak == pytest.approx(math.sqrt(0.98 / 0.0004))
    assert found.largest_residual < 1e-9
    assert found.describes


def test_a_law_with_noise_is_within_its_intervals() -> None:
    factors = (0.98, 1.01, 1.0, 1.02, 0.99)
    rates = {number: [LAW.rate(number) * one for one in factors] for number in CLIENTS}
    found = fit(rates, resamples=200)
    assert isinstance(found, Fit)
    for estimate, known in ((found.gamma, 50.0), (found.alpha, 0.02), (found.beta, 0.0004), (found.peak, 49.497)):
        assert estimate.low is not None
        assert estimate.high is not None
        assert estimate.low < known < estimate.high
    assert found == fit(rates, resamples=200)


def test_no_law_is_told_by_data_that_do_not_tell_it() -> None:
    points = {number: [LAW.rate(number)] * 3 for number in CLIENTS}
    for count, why in (
        (5, "5 values of N; a fit takes 6"),
        (6, "throughput does not fall up to N = 32, so the peak is unknown"),
    ):
        assert fit(dict(list(points.items())[:count])) == NoFit(why)


def test_a_ceiling_of_lanes_is_not_fitted() -> None:
    cells = [one for one in cells_of(whole_session(rounds=3)).values() if one.cell.loop == "closed"]
    swept = {one.cell.buyers: one.rates for one in cells if one.cell.strategy == "segment-locks" and one.lanes == 16}
    assert len(swept) > 1
    assert isinstance(fit(swept), NoFit)
