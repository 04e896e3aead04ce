"""`segmented lock run`: a command of the shell under a lock."""

import signal
from functools import partial

import pytest

from segmented.locks import Lock
from segmented.locks.operator import revoke
from segmented.servers import ValkeyServer
from segmented.stores.redis import RedisStore
from tests.support import command_line

ran = partial(command_line.ran_apart, "lock", "run")
READY = "trap '' TERM; sleep 300 & echo ready; while true; do sleep 0.1; done"


def test_a_command_runs_under_the_lock_and_its_code_is_the_answer(store: RedisStore, valkey: ValkeyServer) -> None:
    done = ran("job", "--", "sh", "-c", 'echo "$SEGMENTED_LOCK $SEGMENTED_FENCING_TOKEN"; exit 3', url=valkey.url)
    lock = Lock(store, "job")
    assert done.returncode == 3
    name, token = done.stdout.split()
    with lock.acquire(timeout=0) as lease:  # it is free again
        assert (name, 0 < int(token) < lease.fencing_token) == ("job", True)


def test_nothing_runs_while_another_holds_the_lock(store: RedisStore, valkey: ValkeyServer) -> None:
    with Lock(store, "job").acquire():
        done = ran("job", "--", "echo", "ran", url=valkey.url)
    assert (done.returncode, done.stdout) == (75, "")
    assert done.stderr == "segmented: lock 'job' is held; nothing was run\n"


@pytest.mark.parametrize(
    ("command", "code", "sentence"),
    [
        (("nonsense-7",), 127, "segmented: there is no command 'nonsense-7'\n"),
        (("/dev/null",), 126, "segmented: '/dev/null' cannot be started: Permission denied\n"),
        (("--",), 2, "segmented: there is no command after the name: segmented lock run job -- COMMAND\n"),
    ],
    ids=["missing", "not a program", "none"],
)
def test_a_command_that_cannot_be_started_is_told_as_a_shell_tells_it(
    valkey: ValkeyServer, command: tuple[str, ...], code: int, sentence: str
) -> None:
    done = ran("job", *command, url=valkey.url)
    assert (done.returncode, done.stderr) == (code, sentence)


def test_a_signal_to_end_reaches_the_command_whose_end_is_the_answer(store: RedisStore, valkey: ValkeyServer) -> None:
    with command_line.started(
        "lock", "run", "job", "--", "sh", "-c", "echo ready; exec sleep 60", url=valkey.url
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "ready\n"
        run.send_signal(signal.SIGTERM)
        assert run.wait(command_line.SECONDS) == 128 + signal.SIGTERM
    Lock(store, "job").acquire(timeout=0).release()


def test_a_command_whose_lease_is_lost_is_ended(store: RedisStore, valkey: ValkeyServer) -> None:
    """It ignores SIGTERM, and is killed after its grace."""
    options = ("--ttl", "1", "--grace", "0.1")
    with command_line.started("lock", "run", *options, "job", "--", "sh", "-c", READY, url=valkey.url) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "ready\n"
        revoke(store, "job")
        assert run.wait(command_line.SECONDS) == 74
        assert run.stderr is not None
        assert run.stderr.read() == "segmented: the lease on 'job' is lost: ending the command\n"
