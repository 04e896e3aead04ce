"""What no client of ours sends is refused by the script itself, before anything is written."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pytest
import redis

from segmented.servers import ValkeyServer
from tests.support.written.bench import Stand, Step
from tests.support.written.damage import odd_arguments
from tests.support.written.stories import STORIES

UNREAD = {"user_script"}
"""First words of the error for a JSON list that cannot be read, such as one with NaN."""
STORY_OF = {"queue_orders": "outbox"}
"""Script -> the story that calls it, unless it is that of the pool."""


@pytest.fixture
def stand(valkey: ValkeyServer) -> Iterator[Stand]:
    with redis.Redis.from_url(valkey.url) as server:
        yield Stand(server)


def steps_of(stand: Stand, name: str) -> list[Step]:
    return [step for step in stand.steps(STORIES[STORY_OF.get(name, "pool")]) if step.name == name]


QUANTITIES = {"reserve": 5, "grant": 2, "queue_orders": 3, "restock": 3, "open_pool": 2, "resize": 1}
"""Script -> the argument with a quantity, units or segments."""


@pytest.mark.parametrize("name", QUANTITIES)
def test_a_quantity_below_one_or_no_whole_number_is_refused_by_the_script_itself(stand: Stand, name: str) -> None:
    step = next(step for step in steps_of(stand, name) if not isinstance(stand.run(step)[0], Exception))
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
def test_an_id_that_is_not_plain_text_or_an_unknown_state_is_refused_before_writes(stand: Stand, name: str) -> None:
    steps, told = steps_of(stand, name), []
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
