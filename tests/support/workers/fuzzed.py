"""Random damage to a message as it stands in the queue: other values anywhere, parts gone, bytes turned."""

import base64
import json
from copy import deepcopy
from random import Random
from typing import Any, Final

DEPTH_MAX: Final = 3
TEXTS: Final = (
    "",
    "x",
    "segmented.take_envelope",
    "segmented.take_order",
    "\u202e",
    "\x00",
    "9" * 400,
    "{}",
    "null",
    "\ud800",
)
NUMBERS: Final = (0, -1, 1, 2**31, 2**63, -(2**63), 10**30, 0.5, 1e308, float("inf"), float("nan"))


def fuzzed(random: Random, sent: dict[str, Any]) -> bytes:
    """Return the message with one to four pieces of damage."""
    item = deepcopy(sent)
    body = json.loads(base64.b64decode(item["body"]))
    parts = {"item": item, "body": body}
    for _ in range(random.randint(1, 4)):
        _damage(random, parts[random.choice(("item", "item", "body"))])
    if "body" in item and random.random() < 0.8:  # else the damaged text stays as it is
        item["body"] = base64.b64encode(json.dumps(body).encode()).decode()
    text = json.dumps(item).encode()
    if random.random() < 0.1:  # bytes, seldom: hardly any of these is JSON
        place = random.randrange(len(text))
        text = text[:place] + bytes([random.randrange(256)]) + text[place + random.randint(0, 20) :]
    return text


def _damage(random: Random, whole: Any) -> None:  # noqa: ANN401  # anything that JSON has
    """Change, remove or add a value somewhere in it."""
    place = whole
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = random.choice(keys)
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or random.random() < 0.3:  # mostly deeper
            break
        place = inner
    match random.randrange(4):
        case 0 if isinstance(place, dict):
            del place[key]
        case 1 if isinstance(place, dict):
            place[random.choice((*TEXTS[:4], "eta", "expires", "callbacks", "timelimit", "v"))] = _value(random, 0)
        case 2 if isinstance(place, list):
            place.insert(random.randrange(len(place) + 1), _value(random, 0))
        case _:
            place[key] = _value(random, 0)


def _value(random: Random, depth: int) -> Any:  # noqa: ANN401  # as above
    kind = random.randrange(6 if depth < DEPTH_MAX else 4)
    if kind == 0:
        return random.choice((None, True, False))
    if kind == 1:
        return random.choice(NUMBERS)
    if kind in {2, 3}:
        return random.choice(TEXTS)
    some = [_value(random, depth + 1) for _ in range(random.randint(0, 3))]
    return some if kind == 4 else dict(zip(random.sample(TEXTS[:9], len(some)), some, strict=True))  # a list
