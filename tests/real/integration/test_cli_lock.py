"""`segmented lock` as its user sees it: piped, on a terminal, and against a cluster."""

import json
import re
import signal
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import redis
import redis_lock

from segmented import Pool, compat
from segmented.cli.lock import NOTHING
from segmented.errors import LeaseLost
from segmented.keys import lock_keys
from segmented.locks import Lock, ReentrantLock, Semaphore
from segmented.locks.claim import HERE
from segmented.locks.operator import list_locks, revoke
from segmented.servers import ValkeyServer
from segmented.stores.redis import RedisStore
from tests.support import command_line
from tests.support.servers.deployments import Cluster
from tests.support.servers.nodes import free_ports

ran = partial(command_line.ran, "lock")
ran_apart = partial(command_line.ran_apart, "lock")
on_a_terminal = partial(command_line.on_a_terminal, "lock")
LONG: Final = 600.0
REDISSON: Final = "6f0829ed-bfd3-4e6f-bba3-6f3d66cd176c:57"


def test_a_held_lock_is_shown_in_plain_lines(store: RedisStore, valkey: ValkeyServer) -> None:
    with Lock(store, "order:7", ttl=LONG).acquire() as lease:
        done = ran_apart("show", "order:7", url=valkey.url)
    rows = dict(line.split("\t") for line in done.stdout.splitlines())
    assert (done.returncode, done.stderr) == (0, "")
    who = rf"{lease.holder_id[:8]} of {re.escape(HERE.process)}, 5[0-9]{{2}}\.[0-9]{{3}} s left"
    assert re.fullmatch(who, rows.pop("held by"))
    assert re.fullmatch(r"5[0-9]{2}\.[0-9]{3} s", rows.pop("free in"))
    assert re.fullmatch(r"[0-9]+\.[0-9]{3} s", rows.pop("held for"))
    assert rows == {
        "name": "order:7",
        "kind": "lock",
        "fence": str(lease.fencing_token),
        "listeners": "0 (processes that wait, or did a moment ago)",
    }
    assert lease.holder_id not in done.stdout


def test_a_free_lock_is_shown_as_free_with_exit_code_zero(valkey: ValkeyServer) -> None:
    done = ran("show", "order:7", url=valkey.url)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"free: {NOTHING}\n", "")


def test_json_goes_to_a_file_or_to_standard_output(store: RedisStore, valkey: ValkeyServer, tmp_path: Path) -> None:
    free = ran("show", "order:7", "--json", "-", url=valkey.url)
    assert json.loads(free.stdout) == {"name": "order:7", "is_free": True}
    ReentrantLock(store, "order:7", owner="till 4", ttl=LONG, renew=False).acquire()
    assert ran("show", "order:7", "--json", str(tmp_path / "lock.json"), url=valkey.url).returncode == 0
    found = json.loads((tmp_path / "lock.json").read_text())
    assert (found["is_free"], found["kind"], found["holders"][0]["owner"]) == (False, "reentrant", "till 4")
    done = ran("revoke", "order:7", "--yes", "--json", "-", url=valkey.url)
    revoked = json.loads(done.stdout)
    expected = {"name": "order:7", "is_revoked": True, "kind": "reentrant", "fencing_token": found["fencing_token"]}
    assert revoked == expected


def test_a_revoke_ends_the_lease_and_its_holder_is_told(store: RedisStore, valkey: ValkeyServer) -> None:
    lease = Lock(store, "order:7", ttl=LONG).acquire()
    done = ran("revoke", "order:7", "--yes", url=valkey.url)
    said = f"revoked (lock, last fencing token {lease.fencing_token})\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")
    with pytest.raises(LeaseLost):
        lease.release()
    again = ran("revoke", "order:7", "--yes", url=valkey.url)
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == f"segmented: nothing to revoke: {NOTHING}\n"


def test_in_a_pipe_a_revoke_without_yes_is_refused(store: RedisStore, valkey: ValkeyServer) -> None:
    with Lock(store, "order:7", ttl=LONG).acquire():
        done = ran("revoke", "order:7", url=valkey.url)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "segmented: revoke needs --yes without a terminal\n"


@pytest.mark.parametrize(("typed", "code", "is_held"), [("y\n", 0, False), ("n\n", 1, True)])
def test_on_a_terminal_a_revoke_shows_the_lock_and_asks(
    store: RedisStore, valkey: ValkeyServer, typed: str, code: int, *, is_held: bool
) -> None:
    lease = Lock(store, "order:7", ttl=LONG).acquire()
    ended, shown = on_a_terminal("revoke", "order:7", url=valkey.url, typed=typed)
    assert ended == code
    assert lease.holder_id[:8] in shown
    assert "End 1 lease(s) on order:7? [y/N]" in shown
    assert store.client.exists(lock_keys("order:7").lock) == is_held


def test_held_locks_are_listed_with_what_an_operator_looks_for(store: RedisStore, valkey: ValkeyServer) -> None:
    first, last = (Semaphore(store, "pool", permits=3, ttl=ttl) for ttl in (LONG, 2 * LONG))
    leases = [Lock(store, "order:7", ttl=LONG).acquire(), first.acquire(), last.acquire()]
    done = ran("list", url=valkey.url)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (0, "name\tkind\theld by\tprocess\tage\tleft\tfence\twait\n")
    assert [row[:3] for row in rows] == [
        ["order:7", "lock", leases[0].holder_id[:8]],
        ["pool", "semaphore", f"{leases[1].holder_id[:8]} +1"],
    ]
    assert [row[3] for row in rows] == [HERE.process] * 2
    assert [bool(re.fullmatch(r"[0-9]+\.[0-9]{3} s", row[4])) for row in rows] == [True, False]
    assert all(re.fullmatch(r"[0-9]+\.[0-9]{3} s left", row[5]) for row in rows)
    assert [row[6:] for row in rows] == [[str(leases[0].fencing_token), "0"], [str(leases[2].fencing_token), "0"]]
    matching = ran("list", "--match", "ord*", "--json", "-", url=valkey.url)
    found = json.loads(matching.stdout)
    assert ([lock["name"] for lock in found["locks"]], found["is_complete"]) == (["order:7"], True)
    few = ran("list", "--limit", "1", url=valkey.url)
    assert len(few.stdout.splitlines()) == 1
    assert few.stderr.splitlines()[-1] + "\n" == "there are more than 1: narrow --match, or raise --limit\n"


# --- locks of other keys ---


def others(valkey: ValkeyServer) -> dict[str, str]:
    """Hold a lock as each library writes it, and return its kind by the lock's name."""
    with redis.Redis.from_url(valkey.url) as client:
        assert compat.Lock(client, "ours", timeout=LONG).acquire()
        assert client.lock("theirs", timeout=LONG).acquire()
        assert redis_lock.Lock(client, "signalled", expire=600).acquire()
        client.hset("java", REDISSON, 2)
        client.pexpire("java", 600_000)
        compat.store_of(client).close()
    return {"ours": "compat", "theirs": "redis-py", "signalled": "python-redis-lock", "java": "Redisson"}


def test_a_lock_of_another_library_is_shown_as_such_and_never_as_free(valkey: ValkeyServer) -> None:
    rows = dict[str, str]()
    for name, kind in others(valkey).items():
        done = ran("show", name, url=valkey.url)
        rows = dict(line.split("\t") for line in done.stdout.splitlines())
        assert (done.returncode, done.stderr, rows["name"], rows["kind"]) == (0, "", name, kind)
        assert re.search(r", 5[0-9]{2}\.[0-9]{3} s left$", rows["held by"])
        assert ("held for" in rows) == (kind == "compat")
    assert rows["held by"].startswith(f"{REDISSON} x2, ")


def test_the_list_has_locks_of_compat_and_with_others_those_of_other_libraries(valkey: ValkeyServer) -> None:
    others(valkey)
    with redis.Redis.from_url(valkey.url) as client:
        client.mset({"config": "x", "ours:seg": "y"})
        client.rpush("queue", "z")
    known = [line.split("\t")[:2] for line in ran("list", url=valkey.url).stdout.splitlines()]
    assert known == [["ours", "compat"]]
    each = [line.split("\t")[:2] for line in ran("list", "--others", url=valkey.url).stdout.splitlines()]
    assert each == [
        ["ours", "compat"],
        ["java", "Redisson"],
        ["lock:signalled", "python-redis-lock"],
        ["theirs", "redis-py"],
    ]
    some = ran("list", "--others", "--match", "s*", url=valkey.url).stdout.splitlines()
    assert [line.split("\t")[0] for line in some] == ["lock:signalled"]


def test_a_revoke_ends_locks_of_compat_and_redis_py_and_says_that_it_leaves_others(valkey: ValkeyServer) -> None:
    others(valkey)
    for name, code, said in (
        ("ours", 0, "revoked (compat, last fencing token "),
        ("theirs", 0, "revoked (redis-py)\n"),
        (
            "signalled",
            1,
            "segmented: the key 'lock:signalled' is a lock of python-redis-lock: end it there, with reset()",
        ),
        ("java", 1, "segmented: the key 'java' is a lock of Redisson: end it there, with forceUnlock()\n"),
    ):
        done = ran("revoke", name, "--yes", url=valkey.url)
        assert (done.returncode, (done.stdout + done.stderr)[: len(said)]) == (code, said)
    with redis.Redis.from_url(valkey.url) as client:
        assert [client.exists(key) for key in ("ours", "theirs", "lock:signalled", "java")] == [0, 0, 1, 1]


def test_a_key_of_other_data_is_named_beside_free_and_left_alone_by_a_revoke(valkey: ValkeyServer) -> None:
    with redis.Redis.from_url(valkey.url) as client:
        client.set("config", "x")
        client.rpush("queue", "z")
        for name, kind in (("config", "string"), ("queue", "list")):
            done = ran("show", name, url=valkey.url)
            said = f"the key '{name}' is a {kind}, and not a lock that segmented knows"
            assert (done.returncode, done.stdout) == (0, f"free, except for a key that is not ours: {said}\n")
            assert ran("revoke", name, "--yes", url=valkey.url).returncode == 1
        assert client.exists("config", "queue") == 2


def test_an_account_that_may_not_read_other_keys_is_told_what_was_not_looked_at(
    store: RedisStore, valkey: ValkeyServer
) -> None:
    store.client.execute_command("ACL", "SETUSER", "narrow", "on", ">word", "~seg:*", "&seg:*", "+@all")
    try:
        done = ran("show", "report", url=valkey.url.replace("unix://", "unix://narrow:word@"))
    finally:
        store.client.execute_command("ACL", "DELUSER", "narrow")
    assert done.returncode == 0
    assert done.stdout.endswith(
        "the account may not read report, where segmented.compat and other libraries keep a lock\n"
    )


def test_held_segments_of_a_pool_are_shown_by_its_name_and_listed(store: RedisStore, valkey: ValkeyServer) -> None:
    pool = Pool(store, "poster", ttl=LONG)
    pool.open(stock=10, segments=4)
    with pool.grant("order-1") as grant:
        for words in (["show", "poster"], ["list"]):
            done = ran(*words, url=valkey.url)
            (row,) = (line.split("\t") for line in done.stdout.splitlines())
            assert (done.returncode, row[:2]) == (0, [f"poster segment {grant.segment}", "segment"])
            assert re.fullmatch(r"5[0-9]{2}\.[0-9]{3} s left", row[5])
        refused = ran("revoke", "poster", "--yes", url=valkey.url)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.startswith("segmented: nothing to revoke: 1 segment(s) of this pool are held; ")
    assert ran("show", "poster", url=valkey.url).stdout.startswith("free: ")


def test_on_a_terminal_the_list_is_a_table_and_no_name_steers_it(store: RedisStore, valkey: ValkeyServer) -> None:
    with Lock(store, "[bold]order", ttl=LONG).acquire():
        store.client.set(lock_keys("a\x1b[2Jb").lock, "x", px=600_000)
        code, shown = on_a_terminal("list", url=valkey.url)
    assert code == 0
    assert re.match(r"name +kind +held by +process +age +left +fence +wait", shown)
    assert "[bold]order" in shown
    assert "\x1b[2J" not in shown
    assert r"'a\x1b[2Jb'" in shown


def test_bad_input_is_one_sentence_and_exit_code_two_and_an_absent_server_one(valkey: ValkeyServer) -> None:
    for words, code, sentence in (
        (["show", ""], 2, "a lock needs a name"),
        (["revoke", "", "--yes"], 2, "a lock needs a name"),
        (["list", "--match", ""], 2, "a pattern of lock names needs a name"),
        (["show", "a", "--url", "http://localhost"], 2, "'http://localhost' is not a Redis URL: "),
        (["show", "a", "--url", "unix:///nowhere/at.all"], 1, "no server answers at unix:///nowhere/at.all: "),
    ):
        done = ran(*words, url=valkey.url)
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr.startswith(f"segmented: {sentence}")
        assert done.stderr.count("\n") == 1


# --- a cluster ---


def test_the_locks_of_every_master_are_listed(cluster: Cluster) -> None:
    names = [f"listed:{number:02}" for number in range(30)]
    with RedisStore.from_url(cluster.url) as store:
        leases = [Lock(store, name, ttl=LONG).acquire() for name in names]
        found = list_locks(store, "listed:*")
        done = ran("list", "--match", "listed:*", url=cluster.url)
        for lease in leases:
            lease.release()
    assert (list(found.names), found.is_complete) == (names, True)
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == names


def test_where_no_server_answers_the_command_that_starts_one_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (port,) = free_ports(1)
    url = f"redis://localhost:{port}/0"
    sentence = f"segmented: no server answers at {url}: Error 111 connecting to localhost:{port}. Connection refused"
    assert ran("show", "door", url=url).stderr == f"{sentence}.\n"
    monkeypatch.setattr("segmented.cli.output.DEFAULT_URL", url)
    done = ran("show", "door", url=url)
    assert (done.returncode, done.stderr) == (1, f"{sentence}; `segmented server` starts one\n")


# `segmented lock run`: a command of the shell under a lock.


run_under = partial(command_line.ran_apart, "lock", "run")
SLEEPING = "trap '' TERM; sleep 300 & echo ready; while true; do sleep 0.1; done"


def test_a_command_runs_under_the_lock_and_its_code_is_the_answer(store: RedisStore, valkey: ValkeyServer) -> None:
    done = run_under("job", "--", "sh", "-c", 'echo "$SEGMENTED_LOCK $SEGMENTED_FENCING_TOKEN"; exit 3', url=valkey.url)
    lock = Lock(store, "job")
    assert done.returncode == 3
    name, token = done.stdout.split()
    with lock.acquire(timeout=0) as lease:  # it is free again
        assert (name, 0 < int(token) < lease.fencing_token) == ("job", True)


def test_nothing_runs_while_another_holds_the_lock(store: RedisStore, valkey: ValkeyServer) -> None:
    with Lock(store, "job").acquire():
        done = run_under("job", "--", "echo", "ran", url=valkey.url)
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
    done = run_under("job", *command, url=valkey.url)
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
    with command_line.started("lock", "run", *options, "job", "--", "sh", "-c", SLEEPING, url=valkey.url) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "ready\n"
        revoke(store, "job")
        assert run.wait(command_line.SECONDS) == 74
        assert run.stderr is not None
        assert run.stderr.read() == "segmented: the lease on 'job' is lost: ending the command\n"
