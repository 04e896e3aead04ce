"""`segmented watch` and `segmented exporter` beside a real pool: a pipe, a terminal, Chromium, Prometheus."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.parse
from contextlib import closing, contextmanager
from functools import partial
from http.client import HTTPConnection
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from segmented import Pool, RedisStore
from segmented.keys import shard_keys
from tests.support.command_line import on_a_terminal, ran, started
from tests.support.paths import ROOT
from tests.support.rings import require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from segmented.servers import ValkeyServer

SKU: Final = "concert"
SECONDS: Final = 120.0
RULES: Final = ROOT / "docs" / "monitoring" / "alerts.yml"
KEYS: Final = shard_keys(SKU)
LONG_AGO: Final = 1_000_000


@pytest.fixture
def pool(store: RedisStore) -> Pool:
    """A pool of 100 units in 4 segments, of which 3 are sold and 2 reserved."""
    pool = Pool(store, SKU, ttl=600.0, hold=600.0)  # a browser takes its time
    pool.open(stock=100, segments=4)
    pool.reserve("sold", quantity=3)
    pool.confirm("sold")
    pool.reserve("held", quantity=2)
    return pool


def only_pool(line: str) -> dict[str, Any]:
    (found,) = json.loads(line)["pools"]
    return dict(found)


@contextmanager
def running(*words: str, url: str) -> Iterator[subprocess.Popen[str]]:
    """Start the command; a failed test ends it, too."""
    with started(*words, url=url) as run:
        try:
            yield run
        finally:
            run.kill()


@contextmanager
def serving(*words: str, url: str) -> Iterator[str]:
    """Start a command that serves; give its address. It has to end with 0 at Ctrl-C, and quietly."""
    with running(*words, "--port", "0", url=url) as run:
        assert run.stdout is not None
        address = run.stdout.readline().split()[0]
        try:
            yield address
        finally:
            run.send_signal(signal.SIGINT)
            _, wrong = run.communicate(timeout=SECONDS)
        assert (run.returncode, wrong) == (0, "")


def fetched(address: str, method: str = "GET", content: str | None = None, **headers: str) -> tuple[int, str]:
    """Return the status and the body of an answer. `Host` in the headers replaces the address's own."""
    parts = urllib.parse.urlsplit(address)
    with closing(HTTPConnection(parts.hostname or "", parts.port, timeout=SECONDS)) as connection:
        path = f"{parts.path}?{parts.query}".rstrip("?")
        connection.request(method, path, content, {name: text.encode("latin-1") for name, text in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


# --- in a pipe and on a terminal ---


def test_a_watch_in_a_pipe_prints_the_pool_as_a_line_of_json(pool: Pool, valkey: ValkeyServer) -> None:
    with pool.grant("granted"):
        done = ran("watch", SKU, "--every", "0.1", "--for", "0", url=valkey.url)
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    found = only_pool(done.stdout)
    units = (found["stocked"], found["available"], found["reserved"], found["confirmed"])
    assert units == (100, 94, 3, 3)
    assert (sum(found["segments"]), len(found["segments"]), len(found["held"])) == (94, 4, 1)
    assert (found["orders"], found["condition"], found["processes_waiting"]) == (3, "open", 0)
    assert found["outbox"] == {"orders": 0, "due": 0, "due_since_ms": 0, "dead": 0}
    assert (found["refused"], json.loads(done.stdout)["workers"]) == (None, [])


def test_ctrl_c_ends_a_watch_with_exit_code_zero(pool: Pool, valkey: ValkeyServer) -> None:
    with running("watch", SKU, "--every", "0.1", url=valkey.url) as run:
        assert run.stdout is not None
        first = only_pool(run.stdout.readline())
        pool.confirm("held")
        while only_pool(run.stdout.readline())["confirmed"] != 5:  # pytest's time limit bounds this
            pass
        run.send_signal(signal.SIGINT)
        _, wrong = run.communicate(timeout=SECONDS)
    assert (run.returncode, wrong, first["confirmed"]) == (0, "", 3)


def test_a_watch_begins_before_the_pool_is_open(store: RedisStore, valkey: ValkeyServer) -> None:
    with running("watch", SKU, "--every", "0.1", url=valkey.url) as run:
        assert run.stdout is not None
        first = only_pool(run.stdout.readline())
        Pool(store, SKU).open(stock=7, segments=2)
        while not only_pool(run.stdout.readline())["is_readable"]:
            pass
        last = only_pool(run.stdout.readline())
        run.send_signal(signal.SIGTERM)
        run.communicate(timeout=SECONDS)
    assert (first["condition"], last["condition"], last["available"], run.returncode) == ("not open", "open", 7, 0)


def test_a_watch_of_a_name_with_a_typing_error_says_so_at_once(pool: Pool, valkey: ValkeyServer) -> None:
    done = ran("watch", "concrt", "--every", "0.1", "--for", "0.3", url=valkey.url)
    assert done.returncode == 0
    assert done.stderr == f"segmented: pool 'concrt' is not open: waiting for it; did you mean {pool.sku}?\n"


def test_a_watch_says_that_the_server_is_away_and_goes_on(start_valkey: Callable[..., ValkeyServer]) -> None:
    server = start_valkey()
    with RedisStore.from_url(server.url) as store:
        Pool(store, SKU).open(stock=100, segments=4)
    with running("watch", SKU, "--every", "0.1", url=server.url) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.readline()
        os.kill(server.pid, signal.SIGSTOP)
        told = run.stderr.readline()
        os.kill(server.pid, signal.SIGCONT)
        with RedisStore.from_url(server.url) as store:
            Pool(store, SKU).restock(5, restock_id="more")
        while only_pool(run.stdout.readline())["available"] != 105:  # pytest's time limit bounds this
            pass
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=SECONDS)
    assert run.returncode == 0
    assert told.startswith(f"segmented: {server.url}")


def test_sixty_four_segments_fit_on_a_terminal_of_80_columns(store: RedisStore, valkey: ValkeyServer) -> None:
    Pool(store, SKU).open(stock=6_400, segments=64)
    code, shown = on_a_terminal("watch", SKU, "--for", "0", url=valkey.url)
    assert code == 0
    assert "█" * 64 in shown
    assert "·" * 64 in shown
    assert "0 of 6,400 sold (0 %), 0 on hold, 6,400 free" in shown
    assert "…" not in shown


def test_bad_input_is_one_sentence(valkey: ValkeyServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for words, sentence in (
            (["watch", "x" * 129], "sku "),
            (["watch", *map(str, range(101))], "101 pools cannot be watched at once: name up to 100"),
            (["watch", SKU, "--every", "0"], "Invalid value for '--every': "),
            (["watch", SKU, "--web", "--port", port], f"cannot listen on 127.0.0.1 port {port} "),
            (["exporter", SKU, "--host", "203.0.113.1", "--port", "0"], "cannot listen on 203.0.113.1 port 0 "),
        ):
            done = ran(*words, url=valkey.url)
            assert (done.returncode, done.stdout) == (2, "")
            assert done.stderr.startswith(f"segmented: {sentence}")
            assert done.stderr.count("\n") == 1


# --- the page ---


@contextmanager
def browser(folder: Path) -> Iterator[Callable[[str, dict[str, Any]], Any]]:
    """Start headless Chromium; give a function that sends one command of the WebDriver protocol."""
    program = shutil.which("chromedriver") or ""
    require("Chromium", found=bool(program and shutil.which("chromium")), missing="there is no chromedriver")
    port = free_port()
    log = (folder / "chromedriver.log").open("wb")
    run = subprocess.Popen([program, f"--port={port}"], stdout=log, stderr=log)

    def command(path: str, content: dict[str, Any], method: str = "POST") -> Any:  # noqa: ANN401  # the browser's answer
        status, answer = fetched(f"http://127.0.0.1:{port}{path}", method, json.dumps(content))
        assert status == 200, answer
        return json.loads(answer)["value"]

    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--window-size=500,900"]
    wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": {"args": flags}}}}
    try:
        until(lambda: accepts(port))
        session = command("/session", wanted)["sessionId"]
        yield lambda path, content: command(f"/session/{session}/{path}", content)
        command(f"/session/{session}", {}, "DELETE")
    finally:
        run.terminate()
        run.wait(SECONDS)
        log.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def accepts(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


CHECKS: Final = ROOT / "tests" / "support" / "page_checks.js"
PAGE_BYTES_MAX: Final = 60_000
FIRST_PAINT_MS_MAX: Final = 1_000
HEAP_BYTES_MAX: Final = 100_000
"""By which 40 updates may enlarge the heap of a page that keeps 120 readings for its chart."""
COUNT_UPDATES: Final = "window.updates = 0; source.addEventListener('message', () => { window.updates += 1; });"
FIRST_PAINT: Final = "return performance.getEntriesByName('first-contentful-paint')[0].startTime;"
READ_PAGE: Final = """
const of = (selector) => document.querySelector(selector);
return [of("#status").textContent, of(".sold")?.textContent, of(".bars")?.getAttribute("aria-label"),
  of(".locks")?.getAttribute("aria-label"), document.documentElement.scrollWidth <= window.innerWidth];
"""


def test_the_page_shows_the_pool_in_a_real_browser(pool: Pool, valkey: ValkeyServer, tmp_path: Path) -> None:
    with (
        serving("watch", SKU, "--web", "--every", "0.2", url=valkey.url) as address,
        browser(tmp_path) as command,
        pool.grant("granted"),
    ):
        command("url", {"url": address})
        until(lambda: command("execute/sync", {"script": READ_PAGE, "args": []})[1])
        assert command("execute/sync", {"script": READ_PAGE, "args": []}) == [
            "Watching 1 pool.",
            "3 of 100 units sold, 94 free",
            "94 free units in 4 segments, 0 of them empty",
            "1 of 4 locks are held",
            True,
        ]


def test_the_page_has_no_fault_of_contrast_names_viewport_or_width(
    pool: Pool, valkey: ValkeyServer, tmp_path: Path
) -> None:
    with (
        serving("watch", SKU, "--web", "--every", "0.2", url=valkey.url) as address,
        browser(tmp_path) as command,
        pool.grant("granted"),
    ):
        for scheme, width in product(("light", "dark"), (400, 1_200)):
            size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
            devtools(command, "Emulation.setDeviceMetricsOverride", **size)
            features = [
                {"name": "prefers-color-scheme", "value": scheme},
                {"name": "prefers-reduced-motion", "value": "reduce"},
            ]
            devtools(command, "Emulation.setEmulatedMedia", features=features)
            command("url", {"url": address})
            until(lambda: command("execute/sync", {"script": READ_PAGE, "args": []})[1])
            faults = command("execute/sync", {"script": CHECKS.read_text(encoding="utf-8"), "args": []})
            assert (scheme, width, faults) == (scheme, width, [])


def test_the_page_is_small_paints_within_a_second_and_does_not_grow(
    pool: Pool, valkey: ValkeyServer, tmp_path: Path
) -> None:
    with (
        serving("watch", pool.sku, "--web", "--every", "0.1", url=valkey.url) as address,
        browser(tmp_path) as command,
    ):
        assert len(fetched(address)[1]) <= PAGE_BYTES_MAX
        command("url", {"url": address})
        command("execute/sync", {"script": COUNT_UPDATES, "args": []})
        until(lambda: command("execute/sync", {"script": "return window.updates > 130;", "args": []}))
        first = command("execute/sync", {"script": FIRST_PAINT, "args": []})
        before = grown(command)
        until(lambda: command("execute/sync", {"script": "return window.updates > 170;", "args": []}))
        nodes, heap = (now - then for now, then in zip(grown(command), before, strict=True))
        assert (first < FIRST_PAINT_MS_MAX, nodes, heap < HEAP_BYTES_MAX) == (True, 0, True), (first, heap)


def devtools(command: Callable[[str, dict[str, Any]], Any], name: str, **options: Any) -> Any:  # noqa: ANN401  # of Chromium
    return command("goog/cdp/execute", {"cmd": name, "params": options})


def grown(command: Callable[[str, dict[str, Any]], Any]) -> tuple[int, int]:
    """Return the number of elements of the page, and the bytes of its heap."""
    devtools(command, "HeapProfiler.collectGarbage")
    elements = command("execute/sync", {"script": "return document.querySelectorAll('*').length;", "args": []})
    return elements, devtools(command, "Runtime.getHeapUsage")["usedSize"]


def test_foreign_names_and_origins_are_refused(pool: Pool, valkey: ValkeyServer) -> None:
    with serving("watch", pool.sku, "--web", url=valkey.url) as address:
        port = address.rstrip("/").rpartition(":")[2]
        assert fetched(address)[0] == 200
        assert fetched(address, Host=f"localhost:{port}")[0] == 200
        assert fetched(address, Host="shop.example")[0] == 403
        assert fetched(address, Host="192.0.2.1")[0] == 403
        assert fetched(f"{address}events", Origin="http://shop.example")[0] == 403


def test_beyond_loopback_a_password_is_asked_for(pool: Pool, valkey: ValkeyServer) -> None:
    everywhere = "0.0.0.0"  # noqa: S104  # only there is a password asked for
    with running("watch", pool.sku, "--web", "--host", everywhere, "--port", "0", url=valkey.url) as run:
        assert run.stdout is not None
        port = run.stdout.readline().split()[0].rstrip("/").rpartition(":")[2]
        password = run.stdout.readline().split()[-1]
        address = f"http://127.0.0.1:{port}/metrics"
        basic = base64.b64encode(f"any:{password}".encode()).decode()
        assert fetched(address, Authorization=f"Basic {basic}")[0] == 200
        assert fetched(address, Authorization=f"basic {basic}")[0] == 200
        assert fetched(address.replace("metrics", "healthz"))[0] == 200
        assert fetched(address)[0] == 401
        assert fetched(address, Authorization="Basic YW55Ondyb25n")[0] == 401
        assert fetched(address, Authorization="Basic \xe9")[0] == 401
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=SECONDS)


def test_a_password_of_ones_own_is_asked_for_and_not_printed(pool: Pool, valkey: ValkeyServer) -> None:
    words = ("watch", pool.sku, "--web", "--password", "geheim", "--port", "0")
    with running(*words, url=valkey.url) as run:
        assert run.stdout is not None
        address = run.stdout.readline().split()[0]
        basic = base64.b64encode(b"any:geheim").decode()
        assert fetched(address, Authorization=f"Basic {basic}")[0] == 200
        assert fetched(address)[0] == 401
        run.send_signal(signal.SIGINT)
        rest, wrong = run.communicate(timeout=SECONDS)
    assert (rest, wrong) == ("", "")


# --- metrics ---


@contextmanager
def prometheus(address: str, folder: Path) -> Iterator[Callable[[str], list[Any]]]:
    """Let a real Prometheus scrape the exporter every second; give a function that evaluates an expression."""
    program = shutil.which("prometheus") or ""
    require("Prometheus", found=bool(program), missing="there is no program prometheus")
    target = address.partition("//")[2].partition("/")[0]
    scrape = {"job_name": "segmented", "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}
    config = {"rule_files": [str(RULES)], "scrape_configs": [scrape]}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    options = [f"--web.listen-address=127.0.0.1:{port}", f"--storage.tsdb.path={folder / 'data'}"]
    log = (folder / "log").open("wb")
    run = subprocess.Popen([program, f"--config.file={folder / 'prometheus.yml'}", *options], stdout=log, stderr=log)

    def found(expression: str) -> list[Any]:
        query = urllib.parse.urlencode({"query": expression})
        try:
            return list(json.loads(fetched(f"http://127.0.0.1:{port}/api/v1/query?{query}")[1])["data"]["result"])
        except (OSError, KeyError, ValueError):
            return []  # it starts

    try:
        yield found
    finally:
        run.terminate()
        run.wait(SECONDS)
        log.close()


def until(is_so: Callable[[], object]) -> None:
    while not is_so():  # pytest's time limit bounds this
        time.sleep(0.2)


FAULTS: Final[dict[str, Callable[[RedisStore], object]]] = {
    "SegmentedPoolUnreadable": lambda store: store.client.hset(KEYS.meta, "layout", "999"),
    "SegmentedPoolFrozen": lambda store: store.client.delete(KEYS.stock),
    "SegmentedOversold": lambda store: store.client.hincrby(KEYS.meta, "confirmed", 100),
    "SegmentedHoldsOverdue": lambda store: store.client.zadd(KEYS.holds, {"held": LONG_AGO}),
    "SegmentedOutboxStuck": lambda store: store.client.zadd(KEYS.outbox, {"held": LONG_AGO}),
    "SegmentedDeadOrders": lambda store: store.client.hset(KEYS.dead, "held", "1\t2\tfailed\t1\t"),
    "SegmentedFreeSegmentNotTaken": lambda store: store.client.zadd(f"{KEYS.lock}:line", {"party": 1}),
}
"""A fault of a pool for each alert that is about one."""


@pytest.mark.timeout(180)
def test_each_alert_fires_in_a_real_prometheus_in_a_sale_with_its_fault(
    pool: Pool, store: RedisStore, start_valkey: Callable[..., ValkeyServer], valkey: ValkeyServer, tmp_path: Path
) -> None:
    rules = {one["alert"]: one["expr"] for one in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]}
    assert {*rules} == {*FAULTS, "SegmentedServerAway"}
    with (
        serving("exporter", SKU, "--every", "0.1", url=valkey.url) as address,
        prometheus(address, tmp_path) as found,
    ):
        until(lambda: found('segmented_units{sku="concert",state="confirmed"} == 3'))
        assert {name for name, rule in rules.items() if found(rule)} == set()
        whole = {key: store.client.dump(key) for key in store.client.keys("*")}
        for name, harm in FAULTS.items():
            harm(store)
            until(partial(found, rules[name]))
            store.client.flushall()
            for key, content in whole.items():
                store.client.restore(key, 0, content)
            until(lambda: not any(found(rule) for rule in rules.values()))
    server = start_valkey()
    with serving("exporter", SKU, "--every", "0.1", url=server.url) as address:
        until(lambda: "segmented_server_up 1.0" in fetched(address)[1])
        server.stop()
        until(lambda: "segmented_server_up 0.0" in fetched(address)[1])
        assert fetched(address.replace("metrics", "healthz")) == (200, "ok\n")
        assert fetched(address.replace("metrics", "readyz"))[0] == 503
    assert pool.state().confirmed == 3


def test_a_paused_server_makes_the_exporter_unready(
    start_valkey: Callable[..., ValkeyServer],
) -> None:
    server = start_valkey()
    with serving("exporter", "--every", "0.1", url=server.url) as address:
        ready = address.replace("metrics", "readyz")
        assert fetched(ready)[0] == 200
        os.kill(server.pid, signal.SIGSTOP)
        try:
            until(lambda: fetched(ready)[0] == 503)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        until(lambda: fetched(ready)[0] == 200)


def test_workers_that_take_no_orders_make_the_exporter_unready_until_they_do(
    pool: Pool, store: RedisStore, valkey: ValkeyServer
) -> None:
    with serving("exporter", SKU, "--every", "0.1", "--stalled-after", "60", url=valkey.url) as address:
        ready = address.replace("metrics", "readyz")
        assert fetched(ready)[0] == 200
        store.client.zadd(KEYS.outbox, {"held": LONG_AGO})
        until(lambda: fetched(ready)[0] == 503)
        assert "no worker takes the submitted orders of 'concert'" in fetched(ready)[1]
        store.client.delete(KEYS.outbox)
        until(lambda: fetched(ready)[0] == 200)
    assert pool.state().confirmed == 3


def test_promtool_finds_nothing_wrong_with_the_metrics_and_the_rules(pool: Pool, valkey: ValkeyServer) -> None:
    promtool = shutil.which("promtool") or ""
    require("promtool", found=bool(promtool), missing="there is no program promtool")
    subprocess.run([promtool, "check", "rules", RULES], check=True, capture_output=True)
    with serving("exporter", pool.sku, url=valkey.url) as address:
        text = fetched(address)[1]
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
