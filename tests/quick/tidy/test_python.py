from __future__ import annotations

from typing import TYPE_CHECKING

from tests.quick.tidy import rules_python as rules
from tests.quick.tidy.sources import PACKAGES, Rule, files, offences
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

CLOCK = ROOT / "segmented" / "clock.py"
LIKE_REDIS_PY = [ROOT / "segmented" / "compat" / name for name in ("lock.py", "async_lock.py", "terms.py")]
"""Their signatures are redis-py's own."""
QUICK = ROOT / "tests" / "quick"
WAITING: dict[str, str] = {}
"""Files of the quick ring that may name a clock or a sleep, and why no test of theirs is decided by it."""
PUBLISHED = [ROOT / "bench" / "report" / "comparisons.py"]
"""Its sentences are those of published results."""


def all_offences(looking: list[Rule], looked_at: list[Path]) -> list[str]:
    """Apply several rules to each file in turn, which is parsed once."""
    assert looked_at
    return [found for path in looked_at for rule in looking for found in offences(rule, [path])]


def test_all_python_keeps_its_size_and_gives_reasons_for_silence() -> None:
    assert all_offences([rules.size, rules.silence_has_a_reason], files(*PACKAGES, "tests", suffix=".py")) == []


def test_our_packages_name_options_and_booleans() -> None:
    looked_at = [path for path in files(*PACKAGES, suffix=".py") if path not in LIKE_REDIS_PY]
    assert all_offences([rules.options_by_name, rules.booleans_by_name], looked_at) == []


def test_messages_are_in_plain_english() -> None:
    looked_at = [path for path in files(*PACKAGES, suffix=".py") if path not in PUBLISHED]
    assert len(looked_at) > 300
    assert offences(rules.plain_messages, looked_at) == []


def test_the_library_reads_no_wall_clock() -> None:
    looked_at = [path for path in files("segmented", suffix=".py") if path != CLOCK]
    assert looked_at
    assert offences(rules.no_wall_clock, looked_at) == []


def test_quick_tests_do_not_wait_for_time() -> None:
    looked_at = [
        path for path in files("tests/quick", suffix=".py") if path.relative_to(QUICK).as_posix() not in WAITING
    ]
    assert all_offences([rules.no_waits], looked_at) == []


def test_tests_replace_nothing_that_is_private() -> None:
    assert all_offences([rules.no_private_patch], files("tests", suffix=".py")) == []


def test_tests_read_nothing_that_is_private() -> None:
    assert all_offences([rules.tests_use_the_public_face], files("tests", suffix=".py")) == []


def test_names_of_tests_have_at_most_80_characters() -> None:
    assert all_offences([rules.names_of_tests], files("tests", "bench", suffix=".py")) == []


def test_the_redis_stores_touch_nothing_that_the_driver_keeps_private() -> None:
    looked_at = files("segmented/stores/redis", suffix=".py")
    assert looked_at
    assert offences(rules.no_private_attribute, looked_at) == []
