"""A store's memory of the names it has seen: it only grows, and is bounded for locks."""

from __future__ import annotations

from segmented.protocol.wire import Call, Script
from segmented.stores.redis.exchange import LOCKS_MAX, Seen

SCRIPT = Script("script", "", "", takes_seen=True)


def sent(seen: Seen, name: str) -> object:
    """Return what the store sends of a name."""
    call = Call(SCRIPT, (name,), ("argument",))
    seen.added_to(call, "?", "")
    assert call.arguments[0] == "argument"
    return str(call.arguments[1]).removesuffix("-?")


def test_of_a_name_that_was_not_seen_zeros_are_sent() -> None:
    assert sent(Seen(), "pool") == "0-0-0"


def test_a_script_that_takes_nothing_gets_nothing() -> None:
    call = Call(Script("script", "", ""), ("pool",), ())
    Seen().added_to(call, "?", "")
    assert call.arguments == ()


def test_answers_that_come_late_take_nothing_back() -> None:
    seen = Seen()
    seen.note("pool", (1, 7, 70), "?")
    for late in ((1, 3, 0), (1, 7, 60), (0, 0, 65)):
        seen.note("pool", late, "?")
        assert sent(seen, "pool") == "1-7-70"


def test_a_later_epoch_begins_its_numbers_and_an_earlier_one_changes_only_the_token() -> None:
    seen = Seen()
    seen.note("pool", (1, 7, 70), "?")
    seen.note("pool", (2, 3, 0), "?")
    assert sent(seen, "pool") == "2-3-70"
    seen.note("pool", (1, 9, 80), "?")
    assert sent(seen, "pool") == "2-3-80"


def test_the_locks_that_were_used_last_are_remembered_and_all_pools() -> None:
    seen = Seen()
    seen.note("pool", (1, 1, 5), "?")
    for number in range(LOCKS_MAX):
        seen.note(f"lock {number}", (0, 0, number + 1), "?")
    seen.note("lock 0", (0, 0, 1), "?")
    seen.note("one more", (0, 0, 9), "?")
    assert [sent(seen, name) for name in ("lock 0", "lock 1", "lock 2", "one more")] == [
        "0-0-1",
        "0-0-0",
        "0-0-3",
        "0-0-9",
    ]
    assert sent(seen, "pool") == "1-1-5"


def test_a_lock_s_token_never_goes_down() -> None:
    seen = Seen()
    seen.note("lock", (0, 0, 9), "?")
    seen.note("lock", (0, 0, 4), "?")
    assert sent(seen, "lock") == "0-0-9"


def test_the_server_of_the_highest_change_is_sent_along_if_it_is_another_one() -> None:
    def sent_to(server: str) -> object:
        call = Call(SCRIPT, ("pool",), ())
        seen.added_to(call, server, "")
        return call.arguments[0]

    seen = Seen()
    seen.note("pool", (1, 7, 70), "a")
    assert (sent_to("a"), sent_to("b")) == ("1-7-70-a", "1-7-70-b-a")
    seen.note("pool", (1, 6, 0), "b")  # an answer that comes late
    assert sent_to("b") == "1-7-70-b-a"
    seen.note("pool", (1, 7, 0), "b")
    assert (sent_to("a"), sent_to("b")) == ("1-7-70-a-b", "1-7-70-b")
    seen.note("pool", (1, 8, 0), "b", is_sure=False)  # of a script that only reads
    assert sent_to("a") == "1-8-70-a-b"
    seen.note("pool", (1, 9, 0), "a", is_sure=False)
    assert sent_to("b") == "1-9-70-b"
    seen.note("pool", (1, 9, 0), "?")  # from a server that tells no identity
    assert sent_to("b") == "1-9-70-b"
