"""Damage to the keys of a script: each of a wrong type, each value cut, extended, or out of range."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import redis

from tests.support.written.bench import Change, Step

VALUES: Final = (b"", b"nan", b"-5", b"1e400", b"99999999999999999999", b"\xff\x00", b"inf", b"garbage")
SCORES: Final = ("inf", "-5", "1e300")
SEGMENTS: Final = 4


def wrong_types(step: Step) -> Iterator[list[Change]]:
    """Yield for each key that the call knows, or could meet, the commands that make it a list, which no script uses."""
    for key in sorted({*step.before, *_possible(step)}):
        yield [("DEL", key), ("RPUSH", key, "x")]


def _possible(step: Step) -> Iterator[bytes]:
    for key in step.call.keys:
        yield key.encode()
        if key.endswith(":lock"):
            for name in (*map(str, range(SEGMENTS)), "line"):
                yield f"{key}:{name}".encode()


def wrong_values(server: redis.Redis, step: Step) -> Iterator[list[Change]]:
    """Yield for each value before the call the commands that damage it; `server` is used to read them."""
    server.flushdb()
    for key, (value, ttl_ms) in step.before.items():
        server.restore(key, ttl_ms, value)
    found: Any
    for key in sorted(step.before):
        match server.type(key):
            case b"hash":
                found = server.hgetall(key)
                for field, text in sorted(found.items()):
                    yield from ([("HSET", key, field, each)] for each in _damaged(text))
                    yield [("HDEL", key, field)]
            case b"zset":
                for member in server.zrange(key, 0, -1):
                    yield from ([("ZADD", key, score, member)] for score in SCORES)
                yield [("ZADD", key, "1", "stray")]
            case b"string":
                yield from ([("SET", key, each, "KEEPTTL")] for each in _damaged(server.get(key)))
            case b"stream":
                yield [("XADD", key, "*", "x", "y")]
                yield [("XTRIM", key, "MAXLEN", "0")]
                found = server.xrange(key)
                yield from ([("XDEL", key, entry_id)] for entry_id, _ in found)


def _damaged(text: Any) -> Iterator[bytes]:  # noqa: ANN401  # bytes, which redis-py cannot know
    yield text[: len(text) // 2]
    yield text + b"\tx"
    yield text + b"\tx" * 12
    yield text.replace(b"\t", b"")
    yield from VALUES


ODD_NUMBERS: Final = ("-5", "0.5", "nan", "inf", "-inf", "1e300", "9007199254740993", "", "x")
"""Texts in place of a number that a client sends: none is a whole number in any range of ours."""


def odd_arguments(step: Step) -> Iterator[tuple[str, Step]]:
    """Yield the call with each of its numbers replaced, one at a time, and the place with the odd text."""
    sent = step.operation.call().arguments
    for place, argument in enumerate(sent):
        for odd in ODD_NUMBERS:
            if str(argument).isdecimal():
                changed = odd
            elif re.fullmatch(r"\[\d+(,\d+)*\]", str(argument)):
                changed = re.sub(r"\d+", odd or '""', str(argument), count=1)
            else:
                break
            arguments = [*step.call.arguments]
            arguments[place] = changed
            yield f"{place + 1}: {changed}", replace(step, call=replace(step.call, arguments=arguments))
