"""Settings with a password that stand in files, as container engines and service managers hand secrets over."""

import tempfile
from pathlib import Path

import pytest

from segmented.celery.settings import WorkerSettings
from segmented.errors import InvalidInput
from segmented.files import BYTES_MAX, RULES, said_elsewhere, said_in_file
from tests.support.command_line import ran

STOCK = "redis://:stock-secret@stock:6379/0"
BROKER = "redis://:broker-secret@broker:6379/0"
ORDERS = "postgresql://u:orders-secret@orders/shop"


@pytest.fixture(autouse=True)
def _nothing_announced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in {"URL": STOCK, "BROKER": BROKER, "DATABASE": ORDERS}.items():
        (tmp_path / name).write_text(f"{value}\n")
        monkeypatch.setenv(f"SEGMENTED_{name}_FILE", str(tmp_path / name))
    return tmp_path


@pytest.mark.parametrize(
    "given", ["@redis://:hunter2@h/0", "@:hunter2@h:1", "env:redis://:hunter2@h/0", "env::hunter2"]
)
def test_an_address_in_the_place_of_a_name_is_not_shown(given: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        said_elsewhere(given, {})
    assert "***" in str(refused.value)
    assert "hunter2" not in str(refused.value)


URL_FORM = "a Redis URL, as redis://:PASSWORD@HOST:6379/0 is"
BROKER_FORM = "a broker's URL, as redis://:PASSWORD@HOST:6379/0 is"
DATABASE_FORM = "an order database's URL, as postgresql://USER:PASSWORD@HOST/DATABASE is"


@pytest.mark.parametrize(
    ("name", "form", "written"),
    [
        ("URL", URL_FORM, "hunter2"),
        ("URL", URL_FORM, "hunter2://stock"),
        ("URL", URL_FORM, "redis://stock:6379,password=hunter2"),
        ("URL", URL_FORM, "redis://stock?hunter2=1"),
        ("BROKER", BROKER_FORM, "hunter2"),
        ("BROKER", BROKER_FORM, "redis://broker/0?pasword=hunter2"),
        ("DATABASE", DATABASE_FORM, "hunter2"),
        ("DATABASE", DATABASE_FORM, "hunter2://orders"),
    ],
)
def test_of_a_file_that_holds_no_address_only_the_variable_and_the_file_are_named(
    files: Path, name: str, form: str, written: str
) -> None:
    (files / name).write_text(f"{written}\n")
    with pytest.raises(InvalidInput) as refusal:
        WorkerSettings()
    assert str(refusal.value) == f"SEGMENTED_{name}_FILE: {files / name} should hold {form} ({RULES})"


@pytest.mark.parametrize(("name", "form", "url"), [("URL", URL_FORM, None), ("DATABASE", DATABASE_FORM, "redis://h")])
def test_a_command_shows_no_more_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, form: str, url: str | None
) -> None:
    file = tmp_path / "pw"
    file.write_text("hunter2\n")
    monkeypatch.setenv(f"SEGMENTED_{name}_FILE", str(file))
    done = ran("pool", "open", "x", "--stock", "1", "--segments", "1", url=url)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"segmented: SEGMENTED_{name}_FILE: {file} should hold {form} ({RULES})\n"


@pytest.mark.usefixtures("files")
def test_another_process_is_told_the_values_and_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = WorkerSettings()
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    assert WorkerSettings() == settings
    assert settings.environment()["SEGMENTED_URL_FILE"] == ""


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (b"", "should hold one line, the value of SEGMENTED_URL"),
        (b" \n", "should hold one line, the value of SEGMENTED_URL"),
        (b"redis://a\nredis://b\n", "should hold one line, the value of SEGMENTED_URL"),
        (b"x" * (BYTES_MAX + 1), "should hold one line, the value of SEGMENTED_URL"),
        (b"redis://:\xff\xfe@a", "is not valid UTF-8"),
    ],
    ids=["empty", "blank", "two", "endless", "bytes"],
)
def test_a_file_that_holds_no_value_is_refused(tmp_path: Path, written: bytes, said: str) -> None:
    file = tmp_path / "url"
    file.write_bytes(written)
    with pytest.raises(InvalidInput) as refusal:
        said_in_file("SEGMENTED_URL", {"SEGMENTED_URL_FILE": str(file)})
    assert str(refusal.value).startswith("SEGMENTED_URL_FILE: ")
    assert str(refusal.value).endswith(said)
    assert "redis:" not in str(refusal.value)


def test_a_file_that_is_not_there_or_is_a_folder_is_refused(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "nothing", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(InvalidInput, match=rf"^SEGMENTED_URL_FILE: {path} cannot be read: {why}$"):
            said_in_file("SEGMENTED_URL", {"SEGMENTED_URL_FILE": str(path)})
