"""Messages that no publisher of the library writes: every field of a message, with values of wrong types and sizes."""

import base64
import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

MISSING: Final = object()
EXTREME: Final = "9" * 5_000
NESTED: Final = "[" * 100_000
DEEP: Final = (120, 300, 480, 520, 700, 900)
"""Levels of lists that JSON can read. From some 480 on, the process of a prefork worker cannot pass them to a child."""
SIGNATURES: Final[list[Any]] = [5, "x", [5], ["x"], [[]], [{"task": 5}], {"task": "x"}]
HEADERS: Final[dict[str, list[Any]]] = {
    "task": [MISSING, None, 7, 1.5, True, [], {}, ["segmented.take_envelope"], "", "segmented.nothing"],
    "id": [MISSING, None, 7, True, [], {}, ""],
    "timelimit": [5, "x", True, {"a": 1}, [1], [1, 2, 3], ["a", "b"], [-1, None], [None, -1], [0.001, None], [[], []]],
    "retries": [-5, "1", 1.5, True, [], {}, 10**30],
    "eta": ["9999-12-31T23:59:59", "9999-12-31T23:59:59+00:00", "0001-01-01T00:00:00", "x", "", 5, True, [], {}],
    "expires": ["9999-12-31T23:59:59-01:00", "x", 5, True, [], {}],
    "callbacks": SIGNATURES,
    "errbacks": SIGNATURES[:3],
    "chain": SIGNATURES[:3],
    "chord": [5, "x", [5]],
    "shadow": [5, [], {}],
    "lang": [5],
    "root_id": [5, {}],
    "parent_id": [5, {}],
    "group": [5, {}],
    "group_index": ["x", 1.5],
    "argsrepr": [5, {}],
    "kwargsrepr": [5, {}],
    "origin": [5],
    "replaced_task_nesting": ["x", -1],
    "stamped_headers": ["x", 5, [5], {}],
    "stamps": ["x", 5, []],
    "ignore_result": ["x", 5],
    "compression": [5, "x", []],
    "headers": [5, "x", []],
    "get": [5],
    "update": ["x"],
    "_children": [5],
}
THIRD_PARTS: Final[list[Any]] = [
    *("x", 5, True, [], ["x"], {"hostname": "x"}, {"retries": 5}),
    *({"callbacks": value} for value in SIGNATURES),
    *({name: value} for name in ("errbacks", "chain", "chord") for value in (5, "x", [5])),
]
VALUES: Final[list[Any]] = [None, 5, "x", {}]
BODIES: Final[list[Any]] = [
    *(None, 5, 1.5, True, "x", [], {}, [[]], [[], {}], [[], {}, None, None], ["args", {}, None]),
    *([wrong, {}, None] for wrong in VALUES),
    *([[], wrong, None] for wrong in (*VALUES[:3], [])),
    *([[{"v": 1, "sku": "mug", "orders": ["a"]}], {}, part] for part in THIRD_PARTS),
]
RAW_BODIES: Final = [b"\xff{garbage", b"{", EXTREME.encode(), NESTED.encode()]
PROPERTIES: Final[dict[str, list[Any]]] = {
    "delivery_tag": [MISSING, None, 5, True, [], {}, ""],
    "delivery_info": [MISSING, None, 5, "x", [], {}, {"exchange": 5, "routing_key": "x"}, {"exchange": "x"}],
    "body_encoding": [5, "x", []],
    "priority": ["x", []],
    "reply_to": [5, []],
    "correlation_id": [5, []],
}
PARTS: Final[dict[str, list[Any]]] = {
    "properties": [MISSING, None, 5, "x", []],
    "headers": [MISSING, None, 5, "x", []],
    "body": [MISSING, None, 5, [], {}, "\u20ac"],
    "content-type": [None, 5, "x", [], "application/x-python-serialize"],
    "content-encoding": [5, []],
}
ITEMS: Final[list[bytes]] = [
    b"no JSON",
    b"",
    b"\xff",
    b"{",
    b"null",
    b"5",
    b'"x"',
    b"[]",
    NESTED.encode(),
    EXTREME.encode(),
]
ORDERS: Final[list[Any]] = [
    *(
        [[], {}],
        [["mug"], {}],
        [["mug", "a"], {}],
        [["mug", "a", "1"], {}],
        [["mug", "a", 1.5], {}],
        [["mug", "a", True], {}],
    ),
    *([["mug", "a", 0], {}], [["mug", "a", -1], {}], [["mug", 5, 1], {}], [[5, "a", 1], {}], [["mug", "a", 1, 5], {}]),
    *([["mug", "a", 1, None, "more"], {}], [["mug", "a", 1], {"more": 1}], [[{"v": 2, "order": "a"}], {}]),
    *([["nothing", "a", 1], {}], [["mug", "", 1], {}]),
]


def forged(sent: dict[str, Any], sku: str) -> Iterator[tuple[str, bytes]]:
    """Yield each forged message by its name, as it stands in the queue; `sent` is a message as a publisher wrote it."""
    for name, damaged in _damaged(sent, sku):
        if isinstance(damaged, bytes):
            yield name, damaged
            continue
        properties = damaged.get("properties")
        if isinstance(properties, dict) and isinstance(tag := properties.get("delivery_tag"), str) and tag:
            properties["delivery_tag"] = f"forged {name}"
        yield name, json.dumps(damaged).encode()


def _damaged(sent: dict[str, Any], sku: str) -> Iterator[tuple[str, Any]]:
    for number, value in enumerate(ITEMS):
        yield f"item {number}", value
    for name, values in PARTS.items():
        for number, value in enumerate(values):
            yield f"{name} {number}", _with(sent, (name,), value)
    for part, fields in (("properties", PROPERTIES), ("headers", HEADERS)):
        for name, values in fields.items():
            for number, value in enumerate(values):
                yield f"{part} {name} {number}", _with(sent, (part, name), value)
    for number, body in enumerate(RAW_BODIES):
        yield f"raw body {number}", _with(sent, ("body",), base64.b64encode(body).decode())
    for number, value in enumerate(BODIES):
        yield f"body {number}", _with_body(sent, value)
    for number, parts in enumerate(ORDERS):
        named = json.loads(json.dumps([*parts, None]).replace('"mug"', json.dumps(sku)))
        yield f"order {number}", _with(_with_body(sent, named), ("headers", "task"), "segmented.take_order")


def nested(sent: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Yield messages of a right shape with a value that is nested deeply: anywhere in it, at every depth."""
    headers, properties = sent["headers"], sent["properties"]
    for depth in DEEP:
        deep = json.loads("[" * depth + "]" * depth)
        link = {"task": "x", "args": [deep], "kwargs": {}, "options": {}}
        for name, damaged in {
            "argument": _with_body(sent, [[deep], {}, None]),
            "named argument": _with_body(sent, [[], {"envelope": deep}, None]),
            "callback": _with_body(sent, [[], {}, {"callbacks": [link]}]),
            "header": {**sent, "headers": {**headers, "tenant": deep}},
            "stamps": {**sent, "headers": {**headers, "stamps": {"tenant": deep}}},
            "another task": {
                **_with_body(sent, [[deep], {}, None]),
                "headers": {**headers, "task": "celery.accumulate"},
            },
        }.items():
            damaged["properties"] = {**properties, "delivery_tag": f"{name} {depth}"}
            yield f"{name} {depth}", json.dumps(damaged).encode()


def _with_body(sent: dict[str, Any], body: Any) -> dict[str, Any]:  # noqa: ANN401  # anything that JSON has
    return _with(sent, ("body",), base64.b64encode(json.dumps(body).encode()).decode())


def _with(sent: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:  # noqa: ANN401  # as above
    damaged = deepcopy(sent)
    place = damaged
    for name in path[:-1]:
        place = place[name]
    if value is MISSING:
        place.pop(path[-1], None)
    else:
        place[path[-1]] = value
    return damaged
