"""The rules of the tests' deduplicated tasks, by the names of the tasks."""

from typing import Final

from segmented.dedup.celery import OnceRule, latest, per, serial, unique

RULES: Final[dict[str, OnceRule]] = {
    "plain": unique("{key}", ttl=2.0),
    "kept": unique("{key}", keep=60, keep_failures=60, ttl=1.0),
    "resent": unique("{key}", resend_after=0.2, keep=60),
    "lost": unique("{key}", resend_after=0.2, payload=False),
    "unique": unique("{key}"),
    "renewed": unique("{key}", ttl=15.0),
    "daily": per("day", "{key}", tz="Europe/Berlin"),
    "latest": latest("{key}"),
    "quiet": latest("{key}", quiet=0.5),
    "serial": serial("{key}", ttl=5.0),
    "charged": unique("{key}", keep_failures=60, ttl=5.0, key_space="orders"),
    "refunded": unique("{key}", ttl=5.0, key_space="orders"),
    "settled": unique("{key}", keep=60, ttl=5.0, key_space="decisions"),
    "dropped": unique("{key}", keep=60, payload=False, ttl=5.0, key_space="decisions"),
    "credited": serial("{key}", ttl=5.0, key_space="accounts"),
    "debited": serial("{key}", ttl=5.0, key_space="accounts"),
    "three": serial("{key}", at_once=3, ttl=5.0),
}
