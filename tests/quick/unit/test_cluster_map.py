from __future__ import annotations

import pytest
import redis
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

from segmented.stores.redis.addresses import Host
from segmented.stores.redis.cluster_map import (
    PAUSE_MAX,
    PAUSE_MIN,
    REDIRECTIONS_MAX,
    ClusterMap,
    Look,
    Rest,
    SlotUncovered,
    Visit,
    passes,
    slot_of,
    way,
)

ONE, TWO, THREE = Host("10.0.0.1", 1), Host("10.0.0.2", 2), Host("10.0.0.3", 3)
ROWS = [
    [5461, 10922, [b"10.0.0.2", 2, b"id2", []], [b"10.0.0.5", 5, b"id5", []]],
    [0, 5460, [b"10.0.0.1", 1, b"id1", []], [b"10.0.0.4", 4, b"id4", []]],
    [10923, 16383, ["10.0.0.3", 3, "id3", []]],
]


@pytest.fixture
def known() -> ClusterMap:
    made = ClusterMap([ONE])
    made.replace(ROWS, asked=ONE)
    return made


# --- the map ---


def test_a_map_without_a_look_knows_its_seeds_and_no_owner() -> None:
    fresh = ClusterMap([ONE, TWO])
    assert fresh.hosts() == [ONE, TWO]
    assert fresh.owner(0) is None
    assert fresh.masters() == []


def test_every_slot_has_the_owner_of_its_row(known: ClusterMap) -> None:
    assert [known.owner(slot) for slot in (0, 5460, 5461, 10922, 10923, 16383)] == [ONE, ONE, TWO, TWO, THREE, THREE]
    assert known.masters() == [ONE, TWO, THREE]


def test_a_slot_in_no_row_has_no_owner() -> None:
    known = ClusterMap([ONE])
    known.replace([[10, 19, ["10.0.0.1", 1]], [30, 39, ["10.0.0.2", 2]]], asked=ONE)
    assert [known.owner(slot) for slot in (9, 10, 19, 20, 29, 30, 40)] == [None, ONE, ONE, None, None, TWO, None]


def test_whom_to_ask_masters_first_and_who_failed_last(known: ClusterMap) -> None:
    four, five = Host("10.0.0.4", 4), Host("10.0.0.5", 5)
    assert known.hosts() == [ONE, TWO, THREE, five, four]
    assert known.hosts(last=TWO) == [ONE, THREE, five, four, TWO]


def test_a_slot_that_moved_stays_moved_until_the_next_look(known: ClusterMap) -> None:
    before = known.version
    known.move(0, THREE)
    assert known.version == before + 1
    assert (known.owner(0), known.owner(1)) == (THREE, ONE)
    known.replace(ROWS, asked=ONE)
    assert known.owner(0) == ONE


@pytest.mark.parametrize("name", [b"", None, "?"])
def test_a_node_that_does_not_know_its_own_name_is_the_one_that_was_asked(name: object) -> None:
    known = ClusterMap([ONE])
    known.replace([[0, 16383, [name, 7]]], asked=ONE)
    assert known.owner(0) == Host("10.0.0.1", 7)


def test_names_of_nodes_may_be_translated() -> None:
    known = ClusterMap([ONE], remap=lambda host: Host("outside", host.port + 1000))
    known.replace([[0, 16383, ["inside", 7]]], asked=ONE)
    assert known.owner(0) == Host("outside", 1007)
    assert known.redirected(MovedError("0 inside:8"), asked=ONE) == Host("outside", 1008)


def test_keys_with_one_tag_share_a_slot() -> None:
    assert slot_of("seg:lock:{a}") == slot_of("seg:lock:{a}:fence") == slot_of("a") == 15495


# --- the way of a request ---


def walk(known: ClusterMap, happenings: list[object], slot: int = 0) -> list[object]:
    """Take a request's steps; each happening is what the next `Visit` meets, or what changes the map at a look."""
    steps: list[object] = []
    going = way(known, slot)
    step = next(going)
    try:
        while True:
            steps.append(step)
            if not isinstance(step, Visit):
                if isinstance(step, Look) and happenings and callable(happenings[0]):
                    happenings.pop(0)()  # type: ignore[operator]  # it is callable
                step = next(going)
            else:
                met = happenings.pop(0)
                step = going.throw(met) if isinstance(met, Exception) else going.send(met)
    except StopIteration as stop:
        steps.append(stop.value)
    return steps


def test_a_request_goes_to_the_owner(known: ClusterMap) -> None:
    assert walk(known, ["reply"]) == [Visit(ONE), "reply"]


def test_moved_is_followed_and_noted(known: ClusterMap) -> None:
    assert walk(known, [MovedError("0 10.0.0.2:2"), "reply"]) == [Visit(ONE), Visit(TWO), "reply"]
    assert walk(known, ["reply"]) == [Visit(TWO), "reply"]


def test_ask_is_followed_once_and_not_noted(known: ClusterMap) -> None:
    assert walk(known, [AskError("0 10.0.0.2:2"), "reply"]) == [Visit(ONE), Visit(TWO, is_asking=True), "reply"]
    assert walk(known, ["reply"]) == [Visit(ONE), "reply"]


def test_after_an_ask_the_next_error_begins_at_the_owner_again(known: ClusterMap) -> None:
    error = TryAgainError("TRYAGAIN")
    steps = walk(known, [AskError("0 10.0.0.2:2"), error, "reply"])
    assert steps == [Visit(ONE), Visit(TWO, is_asking=True), Rest(PAUSE_MIN, error), Visit(ONE), "reply"]


def test_try_again_pauses_without_a_look(known: ClusterMap) -> None:
    error = TryAgainError("TRYAGAIN")
    steps = walk(known, [error, error, error, error, error, error, "reply"])
    pauses = [step.seconds for step in steps if isinstance(step, Rest)]
    assert pauses == [0.02, 0.04, 0.08, 0.16, PAUSE_MAX, PAUSE_MAX]
    assert not any(isinstance(step, Look) for step in steps)


@pytest.mark.parametrize(
    "error",
    [
        redis.ConnectionError("refused"),
        redis.TimeoutError("slow"),
        OSError("reset"),
        BusyLoadingError("LOADING"),
        ClusterDownError("CLUSTERDOWN"),
        MasterDownError("MASTERDOWN"),
        ReadOnlyError("READONLY"),
    ],
)
def test_when_the_owner_is_away_the_map_is_looked_at_and_a_new_owner_asked_at_once(
    known: ClusterMap, error: Exception
) -> None:
    version = known.version
    assert walk(known, [error, lambda: known.move(0, THREE), "reply"]) == [
        Visit(ONE),
        Look(version, apart_from=ONE),
        Visit(THREE),
        "reply",
    ]


def test_when_nobody_has_taken_over_yet_it_pauses_and_asks_again(known: ClusterMap) -> None:
    error, look = redis.ConnectionError("refused"), Look(known.version, apart_from=ONE)
    steps = walk(known, [error, error, error, "reply"])
    at_once, later = [Visit(ONE), look], [Visit(ONE), look, Rest(0.02, error), Visit(ONE), look, Rest(0.04, error)]
    assert steps == [*at_once, *later, Visit(ONE), "reply"]


def test_two_nodes_that_point_at_each_other_are_left_alone_for_a_while(known: ClusterMap) -> None:
    errors: list[object] = [
        MovedError(f"0 10.0.0.{2 - turn % 2}:{2 - turn % 2}") for turn in range(REDIRECTIONS_MAX + 1)
    ]
    steps = walk(known, [*errors, "reply"])
    rests = [index for index, step in enumerate(steps) if isinstance(step, Rest)]
    assert len(rests) == 1
    assert sum(isinstance(step, Visit) for step in steps[: rests[0]]) == REDIRECTIONS_MAX + 1


def test_a_slot_without_an_owner_is_looked_for() -> None:
    fresh = ClusterMap([ONE])
    assert walk(fresh, [lambda: fresh.replace(ROWS, asked=ONE), "reply"]) == [Look(0), Visit(ONE), "reply"]


def test_a_slot_that_nobody_serves_is_an_owner_that_is_away() -> None:
    fresh = ClusterMap([ONE])
    going = way(fresh, 7)
    assert [next(going), next(going)] == [Look(0), Look(0)]
    rest = next(going)
    assert isinstance(rest, Rest)
    assert isinstance(rest.error, SlotUncovered)
    assert passes(rest.error)


@pytest.mark.parametrize(
    "error",
    [NoScriptError("NOSCRIPT"), ResponseError("WRONGTYPE"), NoPermissionError("NOPERM"), AuthenticationError("x")],
)
def test_a_refusal_is_raised_at_once(known: ClusterMap, error: Exception) -> None:
    with pytest.raises(type(error)):
        walk(known, [error])


def test_a_refusal_that_the_driver_wrapped_while_connecting_is_one_too() -> None:
    wrapped = redis.ConnectionError("while connecting")
    wrapped.__cause__ = AuthenticationError("WRONGPASS")
    assert not passes(wrapped)
    wrapped.__cause__ = OSError("reset")
    assert passes(wrapped)
