from __future__ import annotations

import pytest

from tests.quick.tidy import rules_python as rules
from tests.quick.tidy.sources import PACKAGES, Rule, files, offences
from tests.support.paths import ROOT

CLOCK = ROOT / "segmented" / "clock.py"
LIKE_REDIS_PY = [ROOT / "segmented" / "compat" / name for name in ("lock.py", "async_lock.py", "terms.py")]
"""Their signatures are redis-py's own."""
PUBLISHED = [
    ROOT / "bench" / name
    for name in ("proof/peers/locks/contender.py", "proof/peers/dedup/registry.py", "report/comparisons.py")
]
"""Their sentences are those of published results."""


@pytest.mark.parametrize("rule", [rules.size, rules.silence_has_a_reason])
def test_all_python_keeps(rule: Rule) -> None:
    looked_at = files(*PACKAGES, "tests", suffix=".py")
    assert looked_at
    assert offences(rule, looked_at) == []


@pytest.mark.parametrize("rule", [rules.options_by_name, rules.booleans_by_name])
def test_our_packages_keep(rule: Rule) -> None:
    looked_at = [path for path in files(*PACKAGES, suffix=".py") if path not in LIKE_REDIS_PY]
    assert looked_at
    assert offences(rule, looked_at) == []


def test_messages_are_in_plain_english() -> None:
    looked_at = [path for path in files(*PACKAGES, suffix=".py") if path not in PUBLISHED]
    assert len(looked_at) > 500
    assert offences(rules.plain_messages, looked_at) == []


def test_the_library_reads_no_wall_clock() -> None:
    looked_at = [path for path in files("segmented", suffix=".py") if path != CLOCK]
    assert looked_at
    assert offences(rules.no_wall_clock, looked_at) == []


def test_unit_tests_do_not_sleep() -> None:
    looked_at = files("tests/quick/unit", suffix=".py")
    assert looked_at
    assert offences(rules.no_sleep, looked_at) == []


def test_the_redis_stores_touch_nothing_that_the_driver_keeps_private() -> None:
    looked_at = files("segmented/stores/redis", suffix=".py")
    assert looked_at
    assert offences(rules.no_private_attribute, looked_at) == []
