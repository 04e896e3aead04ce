"""`segmented dedup` as an operator sees it: who holds a key, what becomes of a repeat, and how to end or settle it."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

from segmented import protocol as op
from segmented.dedup import Dedup
from segmented.dedup.celery.settings import close_stores
from segmented.dedup.identity import explicit_key
from segmented.dedup.outcomes import OutcomeForm
from segmented.models.dedup import RecordName
from segmented.servers import ValkeyServer
from segmented.stores.redis import RedisStore
from tests.support import command_line
from tests.support.servers.deployments import Cluster

DAY_MS: Final = 86_400_000
LONG_MS: Final = 600_000
SECRET: Final = "4111111111111111"


@dataclass(frozen=True, slots=True)
class Done:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        return [line.split("\t") for line in self.out.splitlines()]


class DedupCommands:
    """A server, and the command line in this process."""

    def __init__(self, store: RedisStore, url: str) -> None:
        self.store, self.url = store, url
        self.sms = Dedup(store, "sms", on_crash="unknown")

    def ran(self, *words: str) -> Done:
        done = command_line.ran("dedup", *words, url=self.url)
        return Done(done.returncode, done.stdout, done.stderr)

    def begin(self, key: str, ttl_ms: int = LONG_MS, namespace: str = "tasks", **options: Any) -> int:  # noqa: ANN401  # those of the operation
        record = RecordName(namespace, key)
        begun = self.store.execute(
            op.BeginRun(record, f"m-{key}", "0123456789abcdef", "", "shop.send", ttl_ms, DAY_MS, **options)
        )
        return int(getattr(begun, "fencing_token", 0))

    def claim(self, key: str, wait_ms: int = LONG_MS) -> None:
        self.store.execute(op.ClaimKey(RecordName("tasks", key), f"m-{key}", "", "shop.send", wait_ms, DAY_MS))

    def finish(self, key: str, body: str = '"x"', keep_ms: int = LONG_MS) -> None:
        token = self.begin(key)
        record = RecordName("tasks", key)
        finish = op.FinishRun(record, f"m-{key}", "0123456789abcdef", token, "value", body, keep_ms, DAY_MS)
        self.store.execute(finish)

    def doubt(self, key: str = "a") -> None:
        def fail() -> None:
            raise TimeoutError

        with pytest.raises(TimeoutError):
            self.sms.call(key, fail)

    def wait_until_lapsed(self, key: str) -> None:
        command_state = ""
        while command_state not in {"lapsed", "unknown"}:
            command_state = next(row[0] for row in self.ran("list").rows if row[-1] == key)


@pytest.fixture
def commands(valkey: ValkeyServer) -> Iterator[DedupCommands]:
    with RedisStore.from_url(valkey.url) as store:
        yield DedupCommands(store, valkey.url)


# --- list ---


def test_the_list_says_who_holds_each_key_and_for_how_much_longer(commands: DedupCommands) -> None:
    commands.begin("k1", 300_000, attempt=2)
    commands.claim("k2")
    commands.doubt()
    done = commands.ran("list")
    assert (done.code, done.err) == (0, "")
    first, second, third = done.rows
    assert all(re.fullmatch(r"[0-9]{1,2}\.[0-9]{3} s", row.pop(1)) for row in (first, second, third)), "the ages"
    assert re.fullmatch(r"2[0-9]{2}\.[0-9]{3} s|300\.000 s", first.pop(1))
    assert re.fullmatch(r"[56][0-9]{2}\.[0-9]{3} s", second.pop(1))
    assert first == ["running", "shop.send", "m-k1", "2", "01234567", "tasks", "k1"]
    assert second == ["waiting", "shop.send", "m-k2", "0", "-", "tasks", "k2"]
    assert third[:3] == ["unknown", "no end", "sms"]
    assert third[-2:] == ["sms", explicit_key("sms", "a")]
    assert "0123456789abcdef" not in done.out


def test_the_list_is_narrowed(commands: DedupCommands) -> None:
    commands.begin("k1", 300_000)
    commands.claim("k2")
    commands.begin("k3", 1)
    commands.begin("k4", namespace="others", on_lapse="again")
    commands.store.execute(op.ClaimKey(RecordName("tasks", "k5"), "m-k5", "", "shop.other", 2 * LONG_MS, DAY_MS))
    commands.wait_until_lapsed("k3")
    for words, keys in (
        (["--state", "running", "--namespace", "tasks"], ["k1"]),
        (["--state", "waiting"], ["k2", "k5"]),
        (["--state", "lapsed"], ["k3"]),
        (["--namespace", "others"], ["k4"]),
        (["--namespace", "nobody"], []),
        (["--state", "all", "--namespace", "tasks"], ["k3", "k1", "k2", "k5"]),
        (["--task", "shop.send", "--limit", "1"], ["k3"]),
        (["--task", "shop.other"], ["k5"]),
        (["--task", "shop.other", "--state", "running"], []),
        (["--task", "shop"], []),
    ):
        assert [row[-1] for row in commands.ran("list", *words).rows] == keys


# --- explain ---


def test_a_running_key_is_explained_in_sentences(commands: DedupCommands) -> None:
    token = commands.begin("k1")
    key, run, repeat = commands.ran("explain", "k1").out.splitlines()
    assert key == "key k1 of shop.send, in namespace tasks"
    assert re.fullmatch(
        r"running: message m-k1, attempt 0, holder 01234567, since [0-9.]+ s, for [0-9.]+ s unless it is renewed "
        rf"\(fencing token {token}\)",
        run,
    )
    assert repeat == "a repeat now learns that the key is in flight, or waits for it, as its policy says"


def test_a_finished_key_is_explained_without_its_result(commands: DedupCommands) -> None:
    commands.finish("k1", json.dumps(SECRET))
    done = commands.ran("explain", "k1", "--namespace", "tasks")
    _, outcome, repeat = done.out.splitlines()
    assert re.match(r"done: message m-k1 ended [0-9]+\.[0-9]{3} s ago;", outcome)
    assert re.search(r"a result is kept, given to repeats for [56][0-9]{2}\.[0-9]{3} s more$", outcome)
    assert repeat == "a repeat now gets the kept outcome and does not run"
    assert SECRET not in done.out + commands.ran("explain", "k1", "--json", "-").out


def test_waiting_lapsed_unknown_and_forgotten_are_explained(commands: DedupCommands) -> None:
    commands.claim("waits")
    commands.begin("lapses", 1)
    commands.doubt()
    commands.finish("past", keep_ms=0)
    commands.wait_until_lapsed("lapses")
    said = {key: commands.ran("explain", key).out.splitlines() for key in ("waits", "lapses", "past")}
    said["unknown"] = commands.ran("explain", explicit_key("sms", "a")).out.splitlines()
    assert re.match(r"waiting: message m-waits, attempt 0, sent [0-9]+\.[0-9]{3} s ago,", said["waits"][1])
    assert said["waits"][2] == "a repeat now learns that a waiting message has the key, as its policy says"
    assert said["lapses"][1].startswith("lapsed: message m-lapses, attempt 0, holder 01234567, begun ")
    assert said["lapses"][2] == "a repeat now runs"
    assert "not given to repeats any more" in said["past"][1]
    assert said["past"][2] == "a repeat now runs"
    assert "it is not known whether the work was done" in said["unknown"][1]
    assert said["unknown"][2] == "a repeat now is refused until somebody settles the key: see segmented dedup settle"


def test_a_given_key_is_found_by_its_scope_or_its_namespace(commands: DedupCommands) -> None:
    Dedup(commands.store, "payments").call("order 7", lambda: 1)
    commands.doubt("order 8")
    for words in (["--namespace", "payments"], ["--scope", "payments"]):
        assert commands.ran("explain", "order 7", "--given", *words).out.startswith("key ")
    effect = commands.ran("explain", "order 8", "--given", "--namespace", "sms")
    assert effect.out.startswith(f"key {explicit_key('sms', 'order 8')} of sms")


def test_bad_input_is_one_sentence_and_changes_nothing(commands: DedupCommands) -> None:
    commands.begin("both")
    commands.begin("both", namespace="others")
    for words, said in (
        (["explain", "nothing"], "nothing is known of key 'nothing' in any namespace"),
        (["explain", "nothing", "--namespace", "tasks"], "nothing is known of key 'nothing' in namespace 'tasks'"),
        (["explain", "both"], "stands for several records; give --namespace or --scope"),
        (["explain", "k", "--given"], "may have been used anywhere: give its namespace or its scope"),
        (["explain", "k", "--scope", "s"], "a scope belongs to a key that was given by a caller"),
        (
            ["explain", "both", "--namespace", "tasks", "--message", "m"],
            "nothing is known of message 'm' of key 'both'",
        ),
        (["free", "both", "--namespace", "tasks"], "free needs --yes without a terminal"),
        (["settle", "both"], "settle needs either --done with a result in JSON, or --not-done"),
        (["settle", "both", "--done", "1", "--not-done"], "settle needs either --done with a result in JSON"),
        (
            ["settle", "both", "--done", "[" * 100_000],
            "--done is JSON that cannot be read here: maximum recursion depth",
        ),
        (["settle", "both", "--done", "1" * 5_000], "--done is JSON that cannot be read here: Exceeds the limit"),
        (["settle", "both", "--done", "sms-1"], "--done is not valid JSON: Expecting value at character 1; a string"),
        (["list", "--namespace", ""], "a namespace of deduplication needs a name"),
        (["list", "--state", "dead"], "Invalid value for '--state'"),
    ):
        done = commands.ran(*words)
        assert (done.code, done.out) == (2, "")
        assert done.err.count("\n") == 1
        assert said in done.err
    assert len(commands.ran("list").rows) == 2


# --- free, settle ---


def test_a_freed_key_runs_again_and_its_holder_keeps_nothing(commands: DedupCommands) -> None:
    commands.begin("k1")
    done = commands.ran("free", "k1", "--yes")
    assert (done.code, done.out) == (0, "freed: it was running, message m-k1\n")
    assert commands.ran("list").out == ""
    commands.finish("k2")
    freed = json.loads(commands.ran("free", "k2", "--yes", "--json", "-").out)
    assert freed == {"namespace": "tasks", "key": "k2", "state": "done", "message": "m-k2"}


def test_an_unknown_key_is_settled_as_done_with_a_result_for_repeats(commands: DedupCommands) -> None:
    commands.doubt()
    key = explicit_key("sms", "a")
    done = commands.ran("settle", key, "--done", '{"id": "sms-1"}', "--keep", "600")
    assert (done.code, done.out) == (0, "settled as done: repeats get this result\n")
    repeat: object = commands.sms.call("a", lambda: "called")
    assert repeat == {"id": "sms-1"}
    again = commands.ran("settle", key, "--done", "1")
    assert (again.code, again.err) == (1, "segmented: nothing to settle: the key is not in the unknown state\n")
    state = commands.sms.read("a")
    assert state is not None
    assert 500_000 < state.keeps_ms <= 600_000


def test_what_was_settled_as_json_is_read_as_json_whatever_form_the_results_have(commands: DedupCommands) -> None:
    form = OutcomeForm(dump=lambda result: f"<{result}>", load=lambda text: text[text.index("<") + 1 : -1])
    commands.sms = Dedup(commands.store, "sms", on_crash="unknown", dump=form.dump, load=form.load)
    commands.doubt()
    assert commands.ran("settle", explicit_key("sms", "a"), "--done", '"sms-17"').code == 0
    repeat: object = commands.sms.call("a", lambda: "called")
    assert repeat == "sms-17"


def test_an_unknown_key_is_settled_as_not_done_and_called_again(commands: DedupCommands) -> None:
    commands.doubt()
    found = commands.ran("settle", "a", "--given", "--namespace", "sms", "--not-done", "--json", "-")
    assert json.loads(found.out) == {"namespace": "sms", "key": explicit_key("sms", "a"), "is_settled": True}
    assert commands.sms.call("a", lambda: "called") == "called"


def test_the_run_of_one_message_is_explained_settled_and_freed_by_itself(commands: DedupCommands) -> None:
    commands.begin("k1", 1, run_on="message", on_lapse="unknown")
    which = ("k1", "--message", "m-k1")
    commands.wait_until_lapsed("k1")
    assert commands.ran("explain", *which).out.splitlines()[1].startswith("unknown: message m-k1")
    assert commands.ran("settle", *which, "--not-done").code == 0
    commands.begin("k1", run_on="message")
    assert commands.ran("free", *which, "--yes").out == "freed: it was running, message m-k1\n"
    assert commands.ran("list").out == ""


# --- real processes ---


def test_on_a_terminal_free_shows_the_key_and_asks(commands: DedupCommands, valkey: ValkeyServer) -> None:
    commands.begin("k1")
    found, said = command_line.on_a_terminal("dedup", "free", "k1", url=valkey.url, typed="n\n")
    assert found == 1
    assert "running: message m-k1" in said
    assert "Free it, so that a repeat runs?" in said
    assert len(commands.ran("list").rows) == 1


def test_the_keys_of_every_master_of_a_cluster_are_listed_and_explained(cluster: Cluster) -> None:
    with RedisStore.from_url(cluster.url) as store:
        commands = DedupCommands(store, cluster.url)
        keys = [f"k{number}" for number in range(12)]
        for number, key in enumerate(keys):
            commands.begin(key, LONG_MS + 1000 * number, namespace="clustered")
        commands.begin("dead", 1, namespace="clustered")
        commands.wait_until_lapsed("dead")
        assert [row[-1] for row in commands.ran("list", "--namespace", "clustered", "--state", "running").rows] == keys
        assert [row[-1] for row in commands.ran("list").rows if row[-2] == "clustered"] == ["dead", *keys]
        assert commands.ran("explain", "k7").out.startswith("key k7 of shop.send, in namespace clustered\n")
        for key in (*keys, "dead"):
            commands.ran("free", key, "--namespace", "clustered", "--yes")
        assert commands.ran("list", "--namespace", "clustered").out == ""


# --- calls of a task ---


APP: Final = """
from celery import Celery
from segmented.dedup.celery import Once, unique

app = Celery("shop_of_this_test")
app.conf.update(once_url={url!r}, once_namespace="shop", task_always_eager=True)


@app.task(shared=False, base=Once, once=unique("{{order_id}}:{{size}}", keep="1d"))
def charge(order_id, size=1):
    return order_id


@app.task(shared=False, base=Once, once=None)
def plain(order_id):
    return order_id
"""


@pytest.fixture
def module(commands: DedupCommands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the name of a module with an app whose records are on the server."""
    name = f"shop_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(APP.format(url=commands.url))
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    close_stores()


def test_a_call_of_a_task_is_explained_and_freed_by_its_arguments(commands: DedupCommands, module: str) -> None:
    shop = import_module(module)
    first = shop.charge.delay("o-7", 2)
    task = ("--task", f"{module}.charge")
    said = commands.ran("explain", *task, "o-7", "size=2")
    assert f"done: message {first.id} ended" in said.out, said
    assert commands.ran("explain", *task, "o-7").code == 2
    assert commands.ran("free", "--yes", "--app", module, *task, "o-7", "2").out == (
        f"freed: it was done, message {first.id}\n"
    )
    assert not shop.charge.delay("o-7", 2).is_repeat


def test_the_keys_of_an_app_are_listed_wherever_its_records_are(commands: DedupCommands, module: str) -> None:
    commands.begin("k1")
    elsewhere = DedupCommands(commands.store, "redis://127.0.0.1:1/0")
    assert [row[-1] for row in elsewhere.ran("list", "--app", module).rows] == ["k1"]
    refused = elsewhere.ran("list", "--app", "no_such_shop", "--task", "shop.send")
    assert (refused.code, refused.out) == (2, "")
    assert "there is no Celery app in 'no_such_shop': give its module with --app" in refused.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--task", "charge", "o-7"), "task 'charge' does not name its module: give the module of its Celery app"),
        (("--task", "no_such_shop.charge", "o-7"), "there is no Celery app in 'no_such_shop': give its module with"),
        (("--task", "MODULE.plain", "o-7"), "has no task 'MODULE.plain' with base=Once; it has: ... MODULE.charge"),
        (("--task", "MODULE.charge"), "task 'MODULE.charge' cannot be called with these arguments: missing"),
        (("o-7", "o-8"), "2 keys were given: give one, or --task NAME with the arguments of a call"),
        (("--task", "MODULE.charge", "o-7", "--url", "redis://x"), "--url and --task name two servers: a Celery app"),
        (("--app", "MODULE", "o-7"), "--app is for the call of a task: give --task NAME too, or leave --app out"),
    ],
)
def test_a_call_that_cannot_be_found_is_one_sentence(
    commands: DedupCommands, module: str, words: tuple[str, ...], sentence: str
) -> None:
    done = commands.ran("explain", *(word.replace("MODULE", module) for word in words))
    assert (done.code, done.out) == (2, "")
    for part in sentence.replace("MODULE", module).split("... "):  # Celery shares tasks among the apps of a process
        assert part in done.err
