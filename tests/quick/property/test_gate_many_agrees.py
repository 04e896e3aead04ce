"""Any envelopes, one after another, answer and store what their orders would one by one. On SQLite: it is quick."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings, strategies as st

from segmented.errors import SegmentedError
from segmented.models import Order
from segmented.orders import Claim, Gate, connect
from segmented.orders.answers import ConfirmAnswer
from tests.support.pools.gating import one_by_one, stored

ORDERS = st.builds(
    Order,
    st.sampled_from([f"o-{number}" for number in range(12)]),
    st.integers(1, 4),
    st.sampled_from([None, "ann", "bob"]),
)
CLAIMS = st.builds(
    Claim,
    order=ORDERS,
    sku=st.just("mug"),
    segment=st.integers(0, 4),
    epoch=st.sampled_from([1, 1, 1, 1, 1, 2]),
    fence=st.none() | st.integers(0, 5),
    asked=st.sampled_from([None, None, None, 3, 4]),
)
ENVELOPES = st.lists(st.lists(CLAIMS, max_size=12), max_size=4)
QUOTAS = st.lists(st.integers(0, 6), min_size=1, max_size=4)


@settings(max_examples=15, deadline=None)
@given(quotas=QUOTAS, void=st.lists(ORDERS, max_size=2, unique_by=lambda order: order.order_id), envelopes=ENVELOPES)
def test_envelopes_are_sequences_of_confirms(
    quotas: list[int], void: list[Order], envelopes: list[list[Claim]]
) -> None:
    with TemporaryDirectory() as folder:
        together, alone = (opened(Path(folder) / name, quotas, void) for name in ("together", "alone"))
        with together, alone:
            for envelope in envelopes:
                assert shown(together.confirm_many(envelope)) == shown(one_by_one(alone, envelope))
                assert stored(together, "mug") == stored(alone, "mug")
                assert together.totals("mug").sold == together.confirmed_units("mug")


def opened(path: Path, quotas: list[int], void: list[Order]) -> Gate:
    gate = Gate(connect(f"sqlite:///{path}", pool_size=1))
    gate.create()
    gate.open("mug", quotas)
    for order in void:
        gate.void(order_id=order.order_id, sku="mug", quantity=order.quantity)
    return gate


def shown(answers: Sequence[ConfirmAnswer | SegmentedError]) -> list[object]:
    """Return the answers, and an error as its text."""
    return [str(answer) if isinstance(answer, Exception) else answer for answer in answers]
