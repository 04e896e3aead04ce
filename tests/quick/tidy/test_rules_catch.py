"""Each rule can fail: a sample that breaks it once is found once, at its line."""

from tests.quick.tidy import rules_lua, rules_python, rules_text
from tests.quick.tidy.sources import Rule

GOOD_LUA = """#!lua
-- KEYS     1 lock
-- ARGV     1 holder_id   2 ttl_ms
--          3 name
-- answers  {"done"}
return redis.call('SET', KEYS[1], ARGV[3])  -- ARGV[9] is only spoken of
"""

GOOD_PYTHON = """
import time
def wait(call: Callable[P, bool], *args: P.args, patient: bool, **kwargs: P.kwargs) -> bool:
    started = time.gmtime(0)  # noqa: S311  # started on purpose
"""

LONG_FUNCTION = "def long():\n" + "    pass\n" * 70

BROKEN: list[tuple[Rule, str, int]] = [
    (rules_python.size, "\n" * 701, 701),
    (rules_python.size, LONG_FUNCTION, 1),
    (rules_python.options_by_name, "def reserve(**options: int): ...", 1),
    (rules_python.options_by_name, "class Pool:\n    def reserve(self, **options: Any): ...", 2),
    (rules_python.options_by_name, "class Pool:\n    def __init__(self, **options: Any): ...", 2),
    (rules_python.booleans_by_name, "def reserve(wait: bool): ...", 1),
    (rules_python.booleans_by_name, "def reserve(wait: bool | None = None): ...", 1),
    (rules_python.booleans_by_name, "def reserve(wait: Annotated[bool, Option()]): ...", 1),
    (rules_python.booleans_by_name, "def reserve(wait: Optional[bool]): ...", 1),
    (rules_python.no_wall_clock, "import time\ntime.time()", 2),
    (rules_python.no_wall_clock, "from time import time", 1),
    (rules_python.no_wall_clock, "import datetime\ndatetime.datetime.now()", 2),
    (rules_python.no_private_import, "import redis\nfrom redis._parsers import Parser", 2),
    (rules_python.no_private_import, "from redis.client import Redis, _Parser", 1),
    (rules_python.no_waits, "import time\ntime.sleep(1)", 2),
    (rules_python.no_waits, "from time import monotonic", 1),
    (rules_python.no_waits, "import asyncio\nasync def f():\n    await asyncio.sleep(0.1)", 3),
    (rules_python.no_private_patch, 'def test(monkeypatch):\n    monkeypatch.setattr(pool, "_seen", 1)', 2),
    (rules_python.no_private_patch, 'def test(monkeypatch):\n    monkeypatch.setattr("segmented.stock._seen", 1)', 2),
    (rules_python.names_of_tests, "class A:\n    async def test_" + 76 * "n" + "(self): ...", 2),
    (rules_python.silence_has_a_reason, "x = 1  # noqa: S311", 1),
    (rules_python.silence_has_a_reason, "x = 1  # noqa", 1),
    (rules_python.silence_has_a_reason, "x = 1  # type: ignore[arg-type]", 1),
    (rules_python.silence_has_a_reason, "x = 1  # noqa: S311  # why", 1),
    (rules_lua.contract, GOOD_LUA.replace("KEYS     1 lock", "one key"), 6),
    (rules_lua.contract, GOOD_LUA.replace("-- answers", "-- returns"), 1),
    (rules_lua.contract, GOOD_LUA.replace("3 name", "name"), 6),
    (rules_lua.contract, GOOD_LUA.replace("ARGV[3]", "ARGV[4]"), 6),
    (rules_lua.arguments_are_named, "-- KEYS  1 meta\nlocal STOCK = KEYS[2]", 2),
    (rules_lua.no_scan, "return redis.call('KEYS', ARGV[1])", 1),
    (rules_lua.no_scan, 'return redis.call("hscan", KEYS[1], 0)', 1),
    (rules_lua.no_key_literal, "return redis.call('GET', '" + "se" + "g:{shirt:0}:meta')", 1),
    (rules_lua.plain_comments, "local a = 1\nlocal b = 2\n-- Who holds the lock is\n-- asked first.", 3),
    (rules_lua.plain_comments, "local a = 1\nlocal b = 2 -- held a" + "new", 2),
    (rules_lua.plain_comments, "-- whoever sweeps; else nothing", 1),
    (rules_python.plain_messages, 'message = f"{name!r} is no lock"', 1),
    (rules_python.plain_messages, 'raise ValueError("8 characters; 4 are the most")', 1),
    (rules_python.plain_messages, 'def f():\n    say("the next worker is told of it")', 2),
    (rules_text.finished, "# TO" + "DO: later", 1),
    (rules_text.finished, "-- FIX" + "ME", 1),
    (rules_text.no_machine_path, "see /ho" + "me/anna/orders.csv", 1),
    (rules_text.no_machine_path, 'open("/tm' + 'p/orders.csv")', 1),
    (rules_text.exceptions_have_reasons, 'ignore = [\n    "D203",\n]', 2),
    (rules_text.exceptions_have_reasons, 'ignore = ["D203"]', 1),
    (rules_text.exceptions_have_reasons, '"tests/**" = [\n    "S101", # pytest asserts\n    "D",\n]', 3),
    (rules_text.has_unreleased_part, "# Changelog\n\n## 0.1.0\n", 1),
    (rules_text.plain_english, "Print it for e" + "ver.", 1),
    (rules_text.plain_prose, "# A page\n\nThe next worker is\ntold of it.", 3),
    (rules_text.plain_prose, "It stays as it was.", 1),
    (rules_text.plain_prose, "Set it; else\nit is empty.", 1),
    (rules_text.plain_prose, "It ends. Who holds [the lock](a.md) is\nasked first.", 1),
    (rules_text.plain_prose, "# A page\n\n- What dies is started again.", 3),
    (rules_text.plain_prose, "```\ncode\n```\n\nCounted are the orders.", 5),
]

KEPT: list[tuple[Rule, str]] = [
    (rules_python.no_private_import, "from __future__ import annotations\nfrom redis.client import Redis"),
    (rules_python.size, LONG_FUNCTION.replace("    pass\n", "", 1)),
    (rules_python.options_by_name, GOOD_PYTHON),
    (rules_python.options_by_name, "def _own(**options: int):\n    def inner(**rest: int): ..."),
    (rules_python.booleans_by_name, GOOD_PYTHON),
    (rules_python.no_wall_clock, GOOD_PYTHON),
    (rules_python.no_waits, "import asyncio\nasync def f():\n    await asyncio.sleep(0)"),
    (rules_python.no_private_patch, 'def test(monkeypatch):\n    monkeypatch.setattr(pool, "seen", 1)'),
    (rules_python.names_of_tests, "def test_" + 75 * "n" + "(): ..."),
    (rules_python.silence_has_a_reason, GOOD_PYTHON + 'text = "# noqa"'),
    (rules_lua.contract, GOOD_LUA),
    (rules_lua.contract, GOOD_LUA.replace("KEYS     1 lock", "uses shared/pool.lua").replace("KEYS[1]", "META")),
    (rules_lua.no_scan, GOOD_LUA),
    (rules_lua.no_key_literal, GOOD_LUA),
    (rules_lua.plain_comments, 'local anew = "told"\n-- answers  {"acquired", "1" for a replay, else "0"}'),
    (rules_python.plain_messages, '"""The next is told."""\nsay("there is no run, and it is no longer open")'),
    (rules_text.finished, "a to-do list, mktemp XXXXXX"),
    (rules_text.no_machine_path, "https://example.org/ho" + "me/page and docs/wo" + "rk/page"),
    (rules_text.exceptions_have_reasons, 'ignore = [\n    "D203", # D211 holds\n]\nselect = ["ALL"]'),
    (rules_text.has_unreleased_part, "# Changelog\n\n## [Unreleased]\n"),
    (rules_text.plain_english, "Print it again. <!-- claim: test_it_is_sent_a" + "new -->"),
    (rules_text.plain_prose, "Who holds it? What is slow, and what is not? It prints `nobody is told`."),
    (rules_text.plain_prose, "```text\nnobody is told; else it ends\n```\n\n[What we measured](a.md) has it."),
]


def test_a_rule_finds_what_breaks_it() -> None:
    for rule, text, line in BROKEN:
        found = sorted(set(rule(text)))
        assert line in {number for number, _ in found}, (rule.__name__, text)
        assert all(what for _, what in found)


def test_a_rule_leaves_good_text_alone() -> None:
    assert [(rule.__name__, text) for rule, text in KEPT if list(rule(text))] == []


def test_every_rule_is_shown_to_fail_and_to_pass() -> None:
    rules = {
        value
        for module in (rules_python, rules_lua, rules_text)
        for key, value in vars(module).items()
        if callable(value) and not key.startswith("_") and getattr(value, "__module__", "") == module.__name__
    } - {rules_lua.contract_of}
    assert rules - {case[0] for case in BROKEN} == set()
    assert rules - {case[0] for case in KEPT} == {rules_lua.arguments_are_named}
