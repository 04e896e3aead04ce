"""Workers that send text messages and are killed in the call, by SIGKILL, and started again until all is handled.

`python -m tests.real.faults.sms_herd REDIS_URL PORT POLICY FOLDER`: twelve workers, 300 messages, each given to two
workers, as a broker does whose visibility timeout is too short. Twelve messages kill the first caller: a third
before the call was sent, a third after it was done and before its answer came (by the provider), a third after the
answer. Whoever is dead has its lease ended at once; no other lease lapses. Prints how many were killed. Workers are
forked, because that is faster than to start them.
"""

import http.client
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import redis

from segmented.dedup import Dedup, EffectUnknown
from segmented.dedup.identity import explicit_key
from segmented.dedup.terms import OnCrash
from segmented.keys import once_keys
from segmented.stores.redis import RedisStore

MESSAGES: Final = 300
WORKERS: Final = 12
DEADLY: Final = range(100, 112)
LEASE: Final = 600.0
WAIT: Final = 100.0
SECONDS_MAX: Final = 200
NAMESPACE: Final = "sms"
ON_CRASH: Final[dict[str, OnCrash]] = {"at_most_once": "unknown", "at_least_once": "again", "provider_key": "again"}


def called(port: int, method: str, path: str, content: dict[str, Any] | None = None) -> str | None:
    """Call the provider; return the id of the message that was sent, if one was."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, None if content is None else json.dumps(content))
        found: str | None = json.loads(connection.getresponse().read())["sms"]
    finally:
        connection.close()
    return found


class Worker:
    """One of the twelve, started anew after each death."""

    def __init__(self, number: int, url: str, port: int, policy: str, folder: Path) -> None:
        self.number, self.port, self.policy, self.folder = number, port, policy, folder
        self.effect = Dedup(RedisStore.from_url(url), NAMESPACE, on_crash=ON_CRASH[policy], ttl=LEASE)
        self.handled = folder / f"handled-{number}"

    def run(self) -> None:
        """Handle what is left of its messages; one whose fate is unknown is put aside."""
        before = set(self.handled.read_text().split()) if self.handled.exists() else set()
        with self.handled.open("a") as handled:
            for message in range(MESSAGES):
                if self.number in {message % WORKERS, (message + 5) % WORKERS} and str(message) not in before:
                    with suppress(EffectUnknown):
                        self.send(message)
                    handled.write(f"{message}\n")
                    handled.flush()

    def send(self, message: int) -> None:
        def call(provider_key: str) -> str | None:
            point = message % 3 if self.is_deadly(message) else None
            if point == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            content = {
                "to": message,
                "reference": provider_key,
                "key": provider_key if self.policy == "provider_key" else None,
                "kill": os.getpid() if point == 1 else None,
            }
            sms = called(self.port, "POST", "/send", content)
            if point == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return sms

        with self.effect.begin(str(message), timeout=WAIT) as run:
            if not run.is_replay:
                run.finish(call(run.provider_key("sms")))

    def is_deadly(self, message: int) -> bool:
        if message not in DEADLY:
            return False
        try:
            with (self.folder / f"killed-{message}").open("x") as noted:
                noted.write(str(os.getpid()))
        except FileExistsError:
            return False
        return True


def lapse(pid: int, words: list[str]) -> None:
    """End the lease of the message that a dead worker was killed for, and tell those who wait for it."""
    (message,) = (one.name.partition("-")[2] for one in Path(words[3]).glob("killed-*") if one.read_text() == str(pid))
    key = explicit_key(NAMESPACE, message)
    with redis.Redis.from_url(words[0]) as server:
        server.hset(once_keys(NAMESPACE, key).record, "run_until", "1")
        server.publish(once_keys(NAMESPACE, key).freed, "freed")


def forked(number: int, words: list[str]) -> int:
    """Start a worker; return its process id."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            Worker(number, words[0], int(words[1]), words[2], Path(words[3])).run()
            code = 0
        finally:
            os._exit(code)
    return pid


def main(words: list[str]) -> int:
    """Keep the workers alive until all have handled their messages; return how many were killed."""
    signal.alarm(SECONDS_MAX)
    living = {forked(number, words): number for number in range(WORKERS)}
    killed = 0
    while living:
        pid, status = os.wait()
        number = living.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGKILL:
            killed += 1
            lapse(pid, words)
            living[forked(number, words)] = number
        elif code != 0:
            raise SystemExit(code)
    return killed


if __name__ == "__main__":
    print(main(sys.argv[1:]))  # noqa: T201  # the parent reads it
