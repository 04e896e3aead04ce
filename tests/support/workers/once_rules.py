"""The rules of the tests' deduplicated tasks, by the names of the tasks."""

from __future__ import annotations

from typing import Final

from segmented.dedup.celery import OnceRule

RULES: Final[dict[str, OnceRule]] = {
    "plain": OnceRule("{key}", ttl=2.0),
    "early": OnceRule("{key}", ttl=2.0),
    "kept": OnceRule("{key}", keep=60, keep_failures=60, ttl=1.0),
    "whole": OnceRule(keep=60),
    "resent": OnceRule("{key}", resend_after=0.2, keep=60),
    "until_executed": OnceRule("{key}"),
    "renewed": OnceRule("{key}", ttl=15.0),
    "raising": OnceRule("{key}", on_publish="raise", on_execute="raise", keep=60),
    "dropping": OnceRule("{key}", on_publish="drop", on_execute="drop", keep=60),
    "waiting": OnceRule("{key}", on_publish="wait", on_execute="wait", timeout=60.0),
    "impatient": OnceRule("{key}", on_publish="wait", timeout=0.1),
    "again": OnceRule("{key}", on_publish="reschedule", on_execute="reschedule", delay=0.2),
    "newest": OnceRule("{key}", on_publish="replace"),
    "last": OnceRule("{key}", on_publish="keep_last"),
    "quiet": OnceRule("{key}", on_publish="debounce", delay=0.5),
    "quiet_for_long": OnceRule("{key}", on_publish="debounce", delay=0.5, delay_max=0.9),
    "until_executing": OnceRule("{key}", point="until_executing"),
    "until_executing_newest": OnceRule("{key}", point="until_executing", on_publish="replace"),
    "until_expired": OnceRule("{key}", point="until_expired", window=1.5),
    "until_expired_long": OnceRule("{key}", point="until_expired", window=300.0),
    "while_executing": OnceRule("{key}", point="while_executing", on_execute="return"),
    "while_executing_raise": OnceRule("{key}", point="while_executing", on_execute="raise"),
    "while_executing_drop": OnceRule("{key}", point="while_executing", on_execute="drop"),
    "while_executing_again": OnceRule("{key}", point="while_executing", on_execute="reschedule"),
    "while_executing_wait": OnceRule("{key}", point="while_executing", on_execute="wait"),
    "while_executing_impatient": OnceRule("{key}", point="while_executing", on_execute="wait", timeout=0.1),
    "both": OnceRule("{key}", point="until_and_while_executing", on_execute="reschedule"),
    "both_newest": OnceRule("{key}", point="until_and_while_executing", on_publish="replace", on_execute="reschedule"),
    "both_quiet": OnceRule(
        "{key}", point="until_and_while_executing", on_publish="debounce", delay=0.3, on_execute="wait", timeout=300.0
    ),
    "exact": OnceRule("{key}", point="exactly_once"),
}
