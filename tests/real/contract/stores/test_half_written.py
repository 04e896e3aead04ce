"""A script that fails has changed nothing, whatever its keys hold: no state between the one before and the one after.

Stories call every script at work that it can do. Each call is repeated with each key of a wrong type, with each value
cut, extended by a field, or out of range, and with the memory full. `tests/real/integration/test_account_rights.py`
denies each command in turn.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from segmented.protocol.wire import NUMBERS, load_script
from segmented.servers import ValkeyServer
from tests.support.long_run import in_the_long_run
from tests.support.written.bench import Stand
from tests.support.written.damage import odd_arguments, wrong_types, wrong_values
from tests.support.written.stories import STORIES

each_story = pytest.mark.parametrize("story", STORIES)


@pytest.fixture
def stand(valkey: ValkeyServer) -> Iterator[Stand]:
    with redis.Redis.from_url(valkey.url) as server:
        yield Stand(server)


@each_story
def test_a_key_of_a_wrong_type_leaves_no_half_written_state(stand: Stand, story: str) -> None:
    found: dict[Any, list[bytes]] = {}
    for step in stand.steps(STORIES[story]):
        for changes in wrong_types(step):
            if keys := stand.half_written(step, *changes):
                found[step.name, changes[-1]] = keys
    assert found == {}


@each_story
def test_a_full_memory_leaves_no_half_written_state_and_the_next_call_succeeds(stand: Stand, story: str) -> None:
    found: dict[Any, list[bytes]] = {}
    for step in stand.steps(STORIES[story]):
        if keys := stand.half_written(step, ("CONFIG", "SET", "maxmemory", "1")):
            found[step.name, step.operation] = keys
        stand.server.config_set("maxmemory", 0)
        reply, _, _ = stand.run(step)
        assert not isinstance(reply, Exception), (step, reply)
    assert found == {}


@pytest.mark.parametrize("story", ["outbox", "carts", *in_the_long_run(*sorted({*STORIES} - {"outbox", "carts"}))])
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
