"""A script that fails has changed nothing, whatever its keys hold: no state between the one before and the one after.

Stories call every script at work that it can do. Each call is repeated with each key of a wrong type, with each value
cut, extended by a field, or out of range, and with the memory full. `tests/real/integration/test_account_rights.py`
denies each command in turn.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest
import redis

from segmented.protocol.wire import NUMBERS, load_script
from tests.fixtures.suite import SCRIPTS
from tests.support.written.bench import Stand
from tests.support.written.damage import odd_arguments, wrong_types, wrong_values
from tests.support.written.stories import STORIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.servers import ValkeyServer

UNREAD = {"user_script"}
"""First words of the error for a JSON list that cannot be read, such as one with NaN."""
each_story = pytest.mark.parametrize("story", STORIES)


@pytest.fixture
def stand(private_valkey: ValkeyServer) -> Iterator[Stand]:
    with redis.Redis.from_url(private_valkey.url) as server:
        yield Stand(server)


def test_the_stories_call_every_script_that_may_write(stand: Stand) -> None:
    called = {step.name for story in STORIES.values() for step in stand.steps(story)}
    assert {name for name in SCRIPTS if load_script(name).writes} - called == set()


@each_story
def test_a_key_of_a_wrong_type_leaves_no_half_written_state(stand: Stand, story: str) -> None:
    found: dict[Any, list[bytes]] = {}
    for step in stand.steps(STORIES[story]):
        for changes in wrong_types(step):
            if keys := stand.half_written(step, *changes):
                found[step.name, changes[-1]] = keys
    assert found == {}


@each_story
def test_a_full_memory_leaves_no_half_written_state_and_the_call_succeeds_once_there_is_some(
    stand: Stand, story: str
) -> None:
    found: dict[Any, list[bytes]] = {}
    for step in stand.steps(STORIES[story]):
        if keys := stand.half_written(step, ("CONFIG", "SET", "maxmemory", "1")):
            found[step.name, step.operation] = keys
        stand.server.config_set("maxmemory", 0)
        reply, _, _ = stand.run(step)
        assert not isinstance(reply, Exception), (step, reply)
    assert found == {}


@each_story
def test_a_value_that_is_cut_extended_or_out_of_range_leaves_no_half_written_state(stand: Stand, story: str) -> None:
    found: dict[Any, list[bytes]] = {}
    for step in stand.steps(STORIES[story]):
        for changes in wrong_values(stand.server, step):
            if keys := stand.half_written(step, *changes):
                found[step.name, changes[-1]] = keys
    assert found == {}


@each_story
def test_a_number_of_a_call_that_is_none_leaves_no_half_written_state(stand: Stand, story: str) -> None:
    found: dict[Any, list[bytes]] = {}
    for step in stand.steps(STORIES[story]):
        # Scripts of locks and runs name no numbers: the check would be a fifth of their time, and they count no units.
        for place, odd in odd_arguments(step) if NUMBERS in load_script(step.name).text else ():
            if keys := stand.half_written(odd):
                found[step.name, place] = keys
    assert found == {}


QUANTITIES = {"reserve": 5, "grant": 2, "queue_orders": 3, "restock": 3, "open_pool": 2, "resize": 1}
"""Script -> the argument with a quantity, units or segments."""


@pytest.mark.parametrize("name", QUANTITIES)
def test_a_quantity_below_one_or_no_whole_number_is_refused_by_the_script_itself(stand: Stand, name: str) -> None:
    steps = [step for story in STORIES.values() for step in stand.steps(story) if step.name == name]
    step = next(step for step in steps if not isinstance(stand.run(step)[0], Exception))
    told = {
        place: str(stand.run(odd)[0]).partition(":")[0]
        for place, odd in odd_arguments(step)
        if place.startswith(f"{QUANTITIES[name]}: ") and "9007199254740993" not in place
    }
    assert len(told) == 8
    assert {said for said in told.values() if not said.startswith("INVALID ")} <= UNREAD, told


OTHERS: Final[dict[str, dict[int, tuple[str, ...]]]] = {
    "reserve": {
        4: ("[5]", '["a\\tb"]', '["a\\nb"]', '["a\tb"]', '["a\nb"]', '["\\u0009"]', "[null]"),
        6: ("[7]", '["a\\tb"]'),
    },
    "settle": {1: ("bogus", "", "reserved"), 3: ("[5]", '["a\\tb"]')},
    "restock": {1: ("a\tb",), 2: ("bogus", "", "sold")},
    "grant": {1: ("a\tb", "a\nb")},
}
"""Script -> argument -> what no caller of ours sends there."""


@pytest.mark.parametrize("name", OTHERS)
def test_an_id_that_is_no_plain_text_or_an_unknown_state_is_refused_before_anything_is_written(
    stand: Stand, name: str
) -> None:
    steps = [step for story in STORIES.values() for step in stand.steps(story) if step.name == name]
    told = []
    for place, others in OTHERS[name].items():
        step = next(
            one for one in steps if len(one.call.arguments) > place + 1 and not isinstance(stand.run(one)[0], Exception)
        )
        for other in others:
            arguments = [*step.call.arguments]
            arguments[place - 1] = other
            odd = replace(step, call=replace(step.call, arguments=arguments))
            told.append((place, other, str(stand.run(odd)[0]).partition(" ")[0], stand.half_written(odd)))
    assert [one for one in told if one[2:] != ("INVALID", [])] == []
