"""PostgreSQL's one statement for a plain envelope answers and stores what the rules would, for any envelopes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from sqlalchemy import Connection

from segmented.models import Order
from segmented.orders import Claim, Gate
from segmented.orders.answers import Confirmed
from segmented.orders.engine import STATEMENTS
from segmented.orders.postgresql import PostgresStatements
from tests.support.pools.gating import stored

IDS = st.sampled_from([f"o-{number}" for number in range(40)])
CUSTOMERS = st.sampled_from([None, "ann", "bob"])
ORDERS = st.builds(Order, IDS, st.integers(1, 4), CUSTOMERS)
CLAIMS = st.builds(
    Claim,
    order=ORDERS,
    sku=st.just("mug"),
    segment=st.integers(0, 3),
    epoch=st.sampled_from([1] * 12 + [2]),
    fence=st.none() | st.integers(0, 5),
    asked=st.sampled_from([None, None, None, 3, 4]),
    sequence=st.integers(0, 30),
)
ODD = st.lists(CLAIMS, max_size=8)


@st.composite
def plain(draw: st.DrawFn) -> list[Claim]:
    """Claims whose ids differ, and that agree on the fence of each segment."""
    fences = draw(st.lists(st.none() | st.integers(0, 5), min_size=4, max_size=4))
    claims = draw(st.lists(CLAIMS, min_size=2, max_size=8, unique_by=lambda claim: claim.order.order_id))
    return [replace(claim, fence=fences[claim.segment], epoch=1) for claim in claims]


ENVELOPES = st.lists(plain() | plain() | ODD, min_size=1, max_size=5)
QUOTAS = st.lists(st.integers(0, 30), min_size=4, max_size=4)
numbers = count()


class Rules(PostgresStatements):
    """The statements without the one for a plain envelope."""

    def confirm_plain(self, _connection: Connection, _claims: Sequence[Claim]) -> list[Confirmed] | None:
        """Change nothing."""
        return None


class Listening(PostgresStatements):
    """Counts the envelopes that the one statement stored."""

    stored = 0

    def confirm_plain(self, connection: Connection, claims: Sequence[Claim]) -> list[Confirmed] | None:
        """Confirm, and count."""
        answers = super().confirm_plain(connection, claims)
        self.stored += answers is not None
        return answers


def test_the_one_statement_and_the_rules_give_the_same_answers_and_rows(
    postgres_database: str, open_gate: Callable[..., Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each example is a sale of its own in the same database, once with the statement and once without."""
    listening = Listening()
    monkeypatch.setitem(STATEMENTS, "postgresql", lambda: listening)
    first = open_gate(postgres_database, pool_size=1)
    monkeypatch.setitem(STATEMENTS, "postgresql", Rules)
    second = open_gate(postgres_database, pool_size=1)

    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(quotas=QUOTAS, void=st.lists(ORDERS, max_size=1), envelopes=ENVELOPES)
    def check(quotas: list[int], void: list[Order], envelopes: list[list[Claim]]) -> None:
        number = next(numbers)
        skus = {first: f"plain-{number}", second: f"rules-{number}"}
        for gate, sku in skus.items():
            gate.open(sku, quotas)
            for order in void:
                gate.void(order_id=order.order_id, sku=sku, quantity=order.quantity)
        for envelope in envelopes:
            answers = [
                shown(gate.confirm_many([replace(claim, sku=sku) for claim in envelope])) for gate, sku in skus.items()
            ]
            assert answers[0] == answers[1]
            assert stored(first, skus[first]) == stored(second, skus[second])
            assert first.totals(skus[first]).sold == first.confirmed_units(skus[first])

    check()
    assert listening.stored


def shown(answers: Sequence[object]) -> list[object]:
    """Return the answers with their sequences, which do not count when answers are compared, and errors as texts."""
    return [
        str(answer) if isinstance(answer, Exception) else (answer, getattr(answer, "sequence", None))
        for answer in answers
    ]
