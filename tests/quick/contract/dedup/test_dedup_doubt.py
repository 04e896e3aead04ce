"""A run that is given up in doubt, settlements that name their message, and the namespaces of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from segmented import protocol as op
from segmented.dedup.operator import namespaces_plan
from segmented.models import Lost, Released, Renewed
from segmented.models.dedup import (
    Freed,
    KeyHeld,
    MessageCancelled,
    NotUnknown,
    RecordName,
    RunBegun,
    RunFinished,
)
from segmented.once_keys import once_partition
from tests.support.contract.dedup.dedup_desk import LONG_MS, KeyClient

if TYPE_CHECKING:
    from segmented.models.dedup import RunOn
    from tests.fixtures.stores import Side

DAY_MS: Final = 86_400_000


class RecordClient:
    """One record."""

    def __init__(self, side: Side, key: str = "k") -> None:
        self.side, self.record = side, RecordName(side.name("effects"), key)

    def begin(self, message: str, holder: str = "h", *, run_on: RunOn = "key", ttl_ms: int = 60_000) -> object:
        return self.side.execute(op.BeginRun(self.record, message, holder, "", "t", ttl_ms, DAY_MS, run_on=run_on))

    def doubt(self, message: str, holder: str = "h", *, run_on: RunOn = "key") -> Released | Lost:
        return self.side.execute(op.DoubtRun(self.record, message, holder, DAY_MS, run_on=run_on))

    def settle(self, of_message: str = "") -> RunFinished | Freed | NotUnknown:
        return self.side.execute(op.SettleRun(self.record, DAY_MS, None, of_message=of_message))


@pytest.fixture
def client(side: Side) -> RecordClient:
    return RecordClient(side)


def test_a_run_in_doubt_is_unknown_at_once_and_a_repeat_of_the_doubt_changes_nothing(client: RecordClient) -> None:
    client.begin("m")
    assert [client.doubt("m"), client.doubt("m")] == [Released(), Released()]
    assert client.begin("n") == KeyHeld("m", "unknown", None)
    (claim,) = client.side.execute(op.ListClaims(client.record.namespace, once_partition(client.record.key), 10))
    assert (claim.key, claim.ends_in_ms) == ("k", None)


def test_a_run_in_doubt_never_lapses_by_itself(client: RecordClient) -> None:
    client.begin("m", ttl_ms=1)
    client.doubt("m")
    client.side.pass_time(0.01)
    assert client.begin("n") == KeyHeld("m", "unknown", None)


@pytest.mark.parametrize("point_name", ["unique", "serial"])
def test_a_retry_of_a_run_in_doubt_lives_and_is_renewed(side: Side, point_name: str) -> None:
    client = KeyClient(side, point_name)
    client.token("m")
    side.execute(op.DoubtRun(client.record, "m", "m's", LONG_MS, client.point.run_on))
    assert isinstance(client.begin("m", "next", attempt=1), RunBegun)
    assert client.renew("m", "next") == Renewed(LONG_MS)
    held = client.begin("m", "third", attempt=1)
    assert (held.state, held.message) == ("running", "m")


def test_only_the_holder_puts_its_run_in_doubt(client: RecordClient) -> None:
    assert client.doubt("m") == Lost()
    client.begin("m")
    assert [client.doubt("m", "other"), client.doubt("n")] == [Lost(), Lost()]
    assert isinstance(client.begin("n"), KeyHeld)
    assert client.settle() == NotUnknown()


def test_a_holder_that_learns_after_all_finishes_its_run_in_doubt(client: RecordClient) -> None:
    begun = client.begin("m")
    assert isinstance(begun, RunBegun)
    client.doubt("m")
    finish = op.FinishRun(client.record, "m", "h", begun.fencing_token, "value", "1", DAY_MS, DAY_MS)
    assert client.side.execute(finish) == RunFinished(replay=False)
    assert client.settle() == NotUnknown()


def test_a_run_of_one_message_in_doubt_keeps_out_its_own_copies_alone(client: RecordClient) -> None:
    client.begin("m", run_on="message")
    assert client.doubt("m", run_on="message") == Released()
    assert isinstance(client.begin("m", "copy", run_on="message"), KeyHeld)
    assert isinstance(client.begin("n", "other", run_on="message"), RunBegun)


def test_a_settlement_of_one_message_does_not_settle_another(client: RecordClient) -> None:
    client.begin("m")
    client.doubt("m")
    assert client.settle("earlier") == NotUnknown()
    assert client.settle("m") == Freed("unknown", "m")
    assert isinstance(client.begin("n"), RunBegun)


@pytest.mark.parametrize("key", ["k", "a*b?[c]\\d", "{k}"])
def test_a_namespace_is_found_by_what_is_held_in_it_and_by_a_key_that_it_knows(side: Side, key: str) -> None:
    client = RecordClient(side, key)
    spaces = [f"{client.record.namespace}-{word}" for word in ("plain", "{od:d}%7D")]
    for number, namespace in enumerate(spaces):
        record = RecordName(namespace, key)
        begun = side.execute(op.BeginRun(record, "m", "h", "", "t", 60_000, DAY_MS))
        assert isinstance(begun, RunBegun)
        if number == 0:
            side.execute(op.FinishRun(record, "m", "h", begun.fencing_token, "value", "1", DAY_MS, DAY_MS))
    held, known = side.run(namespaces_plan()), side.run(namespaces_plan(key))
    assert [name for name in held if name in spaces] == spaces[1:]
    assert [name for name in known if name in spaces] == spaces
    assert [name for name in side.run(namespaces_plan("x" + key)) if name in spaces] == []


@pytest.mark.parametrize("is_dead", [False, True])
@pytest.mark.parametrize("run_on", ["key", "message"])
def test_a_message_that_is_cancelled_leaves_what_is_unknown_unknown(
    client: RecordClient, run_on: RunOn, *, is_dead: bool
) -> None:
    client.side.execute(
        op.BeginRun(client.record, "m", "h", "", "t", 60_000, DAY_MS, run_on=run_on, on_lapse="unknown"),
    )
    if not is_dead:
        client.doubt("m", run_on=run_on)
    cancel = op.CancelMessage(client.record, "m", DAY_MS, run_on, is_dead=is_dead)
    assert [client.side.execute(cancel), client.side.execute(cancel)] == [MessageCancelled(), MessageCancelled()]
    assert client.begin("m", "other", run_on=run_on) == MessageCancelled()
    found = client.side.execute(op.ReadRecord(client.record, "m" if run_on == "message" else ""))
    assert found is not None
    assert found.run is not None
    assert found.run.is_unknown
    (claim,) = client.side.execute(op.ListClaims(client.record.namespace, once_partition(client.record.key), 10))
    assert claim.ends_in_ms is None
    if run_on == "key":
        assert client.begin("n") == KeyHeld("m", "unknown", None)
        assert client.settle() == Freed("unknown", "m")
        assert isinstance(client.begin("n"), RunBegun)
