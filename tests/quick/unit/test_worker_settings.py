import tempfile
from pathlib import Path
from typing import Any

import pytest

from segmented.celery.selling.servers import queue_name
from segmented.celery.settings import LOCAL_DATABASE, LOCAL_URL, WorkerSettings, broker_beside, kombu_url
from segmented.errors import InvalidInput
from segmented.servers.announcement import announcement_file, announcing
from tests.support.paths import ROOT
from tests.support.reference import settings_page

APART = ("redis://:secret@stock:6379/0", "redis://:secret@broker:6379/0")


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No server is announced on this machine, as far as these tests see."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def said(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]) -> WorkerSettings:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return WorkerSettings()


def sentence(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]) -> str:
    with pytest.raises(InvalidInput) as refusal:
        said(monkeypatch, settings)
    return str(refusal.value)


@pytest.mark.parametrize(
    ("url", "broker"),
    [
        ("redis://localhost", "redis://localhost/1"),
        ("redis://localhost:6379/0", "redis://localhost:6379/1"),
        ("redis://:pw@host:6380/4", "redis://:pw@host:6380/5"),
        ("redis://host/?db=7", "redis://host/8"),
        ("rediss://host/0?ssl_cert_reqs=required", "rediss://host/1?ssl_cert_reqs=required"),
        ("redis://host/0?socket_timeout=2&username=u&password=p%2Fw", "redis://u:p%2Fw@host/1"),
        ("unix:///run/x.sock?password=p", "redis+socket://:p@/run/x.sock?virtual_host=1"),
        ("unix:///run/valkey.sock?db=0", "redis+socket:///run/valkey.sock?virtual_host=1"),
        ("unix://:pw@/run/valkey.sock?db=2", "redis+socket://:pw@/run/valkey.sock?virtual_host=3"),
        ("unix:///run/valkey.sock", "redis+socket:///run/valkey.sock?virtual_host=1"),
    ],
)
def test_the_broker_is_the_next_database_of_the_stocks_server(url: str, broker: str) -> None:
    assert broker_beside(url) == broker


def test_settings_come_from_the_environment_and_go_back_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = {
        "SEGMENTED_URL": APART[0],
        "SEGMENTED_DATABASE": "postgresql://u:secret@orders/shop",
        "SEGMENTED_BROKER": APART[1],
        "SEGMENTED_CONCURRENCY": "7",
        "SEGMENTED_QUEUE": "",
        "SEGMENTED_SKUS": "mug, cup,,",
        "SEGMENTED_STEP": "shop.steps:pack",
        "SEGMENTED_ENDS_WITH_STDIN": "1",
        "SEGMENTED_SWEEP_EVERY": "0",
        "segmented_hold": "30",
    }
    settings = said(monkeypatch, everything)
    assert (settings.concurrency, settings.queue, settings.skus) == (7, "segmented", ("mug", "cup"))
    assert (settings.step, settings.ends_with_stdin, settings.sweep_every) == ("shop.steps:pack", True, 0)
    assert (settings.hold, settings.broker_url) == (30, APART[1])
    for name in everything:
        monkeypatch.delenv(name)
    assert said(monkeypatch, settings.environment()) == settings


def test_another_process_gets_what_was_a_default_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """With both URLs said, the broker beside the stock is taken only with the word for it: that goes with them."""
    settings = WorkerSettings()
    assert settings.environment()["SEGMENTED_BROKER_ON_STOCK_SERVER"] == "True"
    again = said(monkeypatch, settings.environment())
    assert again.broker_url == settings.broker_url


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        ({"SEGMENTED_URLS": "x"}, "SEGMENTED_URLS is not a worker setting: did you mean SEGMENTED_URL?"),
        ({"SEGMENTED_CONCURRENCY": "four"}, "SEGMENTED_CONCURRENCY is 'four': it should be a valid integer"),
        ({"SEGMENTED_CONCURRENCY": "0"}, "SEGMENTED_CONCURRENCY is '0': it should be greater than or equal to 1"),
        ({"SEGMENTED_HOLD": "nan"}, "SEGMENTED_HOLD is 'nan': it should be a finite number"),
        (
            {"SEGMENTED_POOL": "forks"},
            "SEGMENTED_POOL is 'forks': it should be 'threads', 'prefork', 'solo' or 'gevent'",
        ),
        (
            {"SEGMENTED_QUEUE_TYPE": "quorum"},
            (
                "SEGMENTED_QUEUE_TYPE is quorum: it should be classic, since only RabbitMQ has other queues, and its "
                "broker is amqp://"
            ),
        ),
        ({"SEGMENTED_METRICS_ADDRESS": "9465"}, "SEGMENTED_METRICS_ADDRESS is '9465': it should be HOST:PORT"),
        ({"SEGMENTED_QUEUE": "a b"}, "SEGMENTED_QUEUE is 'a b': it should have no spaces and no control characters"),
        ({"SEGMENTED_STEP": "pack"}, "SEGMENTED_STEP is 'pack': it should be module:function"),
        ({"SEGMENTED_SKUS": "mug,\x1b"}, "SEGMENTED_SKUS: sku '\\x1b' has characters that cannot be printed"),
        (
            {"SEGMENTED_VISIBILITY_TIMEOUT": "39"},
            (
                "SEGMENTED_VISIBILITY_TIMEOUT is 39 s: it should be at least twice SEGMENTED_TASK_TIME_LIMIT, "
                "which is 20 s"
            ),
        ),
        (
            {"SEGMENTED_SEGMENT_TIMEOUT": "20"},
            "SEGMENTED_SEGMENT_TIMEOUT is 20 s: it should be less than SEGMENTED_TASK_TIME_LIMIT, which is 20 s",
        ),
        (
            {"SEGMENTED_HOLD": "9"},
            "SEGMENTED_HOLD is 9 s: it should be at least SEGMENTED_SEGMENT_TTL, which is 10 s",
        ),
        (
            {"SEGMENTED_PUBLISH_AFTER": "601"},
            "SEGMENTED_HOLD is 600 s: it should be at least SEGMENTED_PUBLISH_AFTER, which is 601 s",
        ),
        (
            {"SEGMENTED_URL": "http://:secret@host"},
            (
                "SEGMENTED_URL cannot be used: 'http://:***@host' is not a Redis URL: it begins with redis://, "
                "rediss:// or unix:// for one server, with redis+sentinel://HOST:PORT/SERVICE for the master that "
                "Sentinels name, or with redis+cluster://HOST:PORT for a cluster"
            ),
        ),
        (
            {"SEGMENTED_DATABASE": "oracle://u:secret@host/shop"},
            (
                "SEGMENTED_DATABASE cannot be used: oracle:// is not a supported order database; use postgresql:// "
                "(psycopg 3), mysql:// (pymysql) or sqlite:///path"
            ),
        ),
        (
            {"SEGMENTED_BROKER": "foo://:secret@host"},
            "SEGMENTED_BROKER cannot be used: foo://:***@host is not a broker that Celery knows",
        ),
        (
            {"SEGMENTED_BROKER": "redis://localhost:1/1?pasword=secret"},
            (
                "SEGMENTED_BROKER cannot be used: redis://localhost:1/1?pasword=*** is not a broker that Celery "
                "can use: there is no option pasword; did you mean password?"
            ),
        ),
        (
            {"SEGMENTED_BROKER": "redis://:secret/x@host"},
            (
                "SEGMENTED_BROKER cannot be used: redis://:***@host cannot be read as an address: in a password, / ? # "
                "and @ must be percent-encoded"
            ),
        ),
    ],
)
def test_what_cannot_be_is_refused_with_one_sentence(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], refusal: str
) -> None:
    assert sentence(monkeypatch, settings) == refusal


@pytest.mark.parametrize(
    ("name", "refusal"),
    [("databse", "there is no setting databse; did you mean database?"), ("zzz", "there is no setting zzz")],
)
def test_a_setting_that_there_is_not_is_named_without_its_value(name: str, refusal: str) -> None:
    given: dict[str, Any] = {"broker_on_stock_server": True, name: "postgresql://u:s3cret@h/x"}
    with pytest.raises(InvalidInput) as caught:
        WorkerSettings(**given)
    assert str(caught.value) == refusal


SAME_SERVER = [
    ("redis://host/0", "redis://host:6379/1"),
    ("redis://:secret@HOST./0", "rediss://:secret@host:6379/1"),
    ("redis://localhost/0", "redis://127.0.0.1/1"),
    ("redis://localhost/0", "redis://[::1]:6379/1"),
    ("redis:///0", "redis://[::ffff:127.0.0.1]/1"),
    ("redis://[fe80:0:0::1]/0", "redis://[fe80::1]/1"),
    ("unix:///run/../run/x.sock?db=0", "unix:///run/x.sock?db=1"),
    ("unix:///run/x.sock?db=0", "redis+socket:///run/x.sock?virtual_host=1"),
    ("redis+cluster://a,b:6380", "redis://b:6380/1"),
    ("redis+sentinel://a,b/shop", "sentinel://b:26379"),
    ("redis://host/0", "redis://other/1;redis://host/1"),
]


@pytest.mark.parametrize(("url", "broker"), SAME_SERVER)
def test_a_broker_on_the_stocks_server_needs_a_word(monkeypatch: pytest.MonkeyPatch, url: str, broker: str) -> None:
    settings = {"SEGMENTED_URL": url, "SEGMENTED_BROKER": broker}
    assert sentence(monkeypatch, settings) == (
        "SEGMENTED_BROKER is on the server of SEGMENTED_URL, where a full queue stops the sale: name another server, "
        "or set SEGMENTED_BROKER_ON_STOCK_SERVER=1"
    )
    taken = said(monkeypatch, {"SEGMENTED_BROKER_ON_STOCK_SERVER": "1"})
    assert taken.broker_url == kombu_url(broker)


@pytest.mark.parametrize(
    ("url", "broker"),
    [
        ("redis://localhost/3", "redis://127.0.0.1:6379/3"),
        ("unix:///run/x.sock", "redis+socket:///run/x.sock?virtual_host=0"),
        ("redis+cluster://a,b", "redis://a"),
    ],
)
def test_the_stocks_own_database_is_refused_whatever_is_said(
    monkeypatch: pytest.MonkeyPatch, url: str, broker: str
) -> None:
    settings = {"SEGMENTED_URL": url, "SEGMENTED_BROKER": broker, "SEGMENTED_BROKER_ON_STOCK_SERVER": "1"}
    assert sentence(monkeypatch, settings) == (
        "SEGMENTED_BROKER names the database of SEGMENTED_URL: stock and messages must not share one"
    )


# --- a local `segmented server` ---


def test_a_running_server_is_found_where_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with announcing("unix:///run/x.sock?db=0", "postgresql://postgres@/segmented?host=/run") as is_announced:
        assert is_announced
        settings = WorkerSettings()
        assert settings.url.get_secret_value() == "unix:///run/x.sock?db=0"
        assert settings.database.get_secret_value() == "postgresql://postgres@/segmented?host=/run"
        assert settings.broker_url == "redis+socket:///run/x.sock?virtual_host=1"
        monkeypatch.setenv("SEGMENTED_URL", APART[0])
        monkeypatch.setenv("SEGMENTED_BROKER", APART[1])
        assert WorkerSettings().database.get_secret_value() == LOCAL_DATABASE  # not that of another stock
        monkeypatch.delenv("SEGMENTED_URL")
        assert WorkerSettings().url.get_secret_value() == "unix:///run/x.sock?db=0"
    monkeypatch.delenv("SEGMENTED_BROKER")
    assert WorkerSettings().url.get_secret_value() == LOCAL_URL


def test_of_two_servers_the_first_is_announced_and_then_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmented.servers.announcement.PATIENCE_SECONDS", 0.0)
    with announcing("unix:///a", "sqlite:////a"):
        with announcing("unix:///b", "sqlite:////b") as is_announced:
            assert not is_announced
        assert WorkerSettings().url.get_secret_value() == "unix:///a"
    with announcing("unix:///b", "sqlite:////b") as is_announced:
        assert is_announced


def test_a_file_that_others_may_write_or_that_nobody_has_locked_announces_nothing() -> None:
    file = announcement_file()
    with announcing("unix:///a", "sqlite:////a"):
        file.chmod(0o666)
        assert WorkerSettings().url.get_secret_value() == LOCAL_URL
        left = file.read_text()
    file.chmod(0o600)
    file.write_text(left)
    assert WorkerSettings().url.get_secret_value() == LOCAL_URL


# --- the page and sales ---


def test_the_reference_page_is_what_the_settings_say() -> None:
    written = (ROOT / "docs" / "reference" / "worker-settings.md").read_text(encoding="utf-8")
    assert written == settings_page(), "`make docs` writes it"


def test_sales_of_other_servers_have_other_queues_whatever_the_password() -> None:
    name = queue_name("redis://:one@host/0", "postgresql://u:one@host/a")
    assert name == queue_name("redis://:two@host/0", "postgresql://u:two@host/a")
    assert name != queue_name("redis://:one@host/0", "postgresql://u:one@host/b")
    assert name != queue_name("redis://:one@host/1", "postgresql://u:one@host/a")
