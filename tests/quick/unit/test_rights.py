"""The commands that a store tries at its first contact are those that its scripts call."""

import re

from segmented.stores.redis.connections import OTHERS, SAMPLES
from tests.support.paths import ROOT

READ_ONLY = {"INFO", "CLUSTER", "PUBSUB"}
"""Asked about the server, not about keys: INFO is checked by itself, and the scripts that need the others write nothing
if they are refused.
"""
LISTENERS = {"SUBSCRIBE"}
"""Sent by the listener of a waiting call, and by no script."""


def test_every_command_of_a_script_is_tried_and_no_other() -> None:
    scripts = [path.read_text(encoding="utf-8") for path in (ROOT / "segmented" / "protocol").rglob("*.lua")]
    called = {name for script in scripts for name in re.findall(r"redis\.p?call\('([A-Z]+)'", script)}
    assert {*SAMPLES, *(line.split()[0] for line in OTHERS)} == (called - READ_ONLY) | LISTENERS


def test_every_publish_is_under_pcall() -> None:
    scripts = [path for path in (ROOT / "segmented").rglob("*.lua") if "redis.call('PUBLISH'" in path.read_text()]
    assert scripts == []
