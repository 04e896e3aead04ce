"""Commands that take an address: none shows a part of a password, whatever is wrong with the address."""

from pathlib import Path
from typing import Final

import pytest

from tests.support.command_line import ran
from tests.support.odd_urls import SECRET, leaks, odd_urls

DEAD: Final = "redis://127.0.0.1:1"
SELL: Final = ("sell", "orders.csv", "--stock", "1", "--segments", "1")
COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "pool": ("pool", "show", "mug", "--url"),
    "pool with a database": ("pool", "audit", "mug", "--url", DEAD, "--database"),
    "lock": ("lock", "show", "door", "--url"),
    "dedup": ("dedup", "list", "--url"),
    "orders": ("orders", "dead", "mug", "--url"),
    "orders with a database": ("orders", "migrate", "--database"),
    "advise": ("advise", "--url"),
    "sell": (*SELL, "--url"),
    "sell with a database": (*SELL, "--url", DEAD, "--database"),
    "sell with a broker": (*SELL, "--url", DEAD, "--database", "sqlite:///o.db", "--broker"),
    "demo": ("demo", "--database", "sqlite:///o.db", "--url"),
    "bench": ("bench", "locks", "--url"),
}


def usable() -> list[str]:
    """Return every ninety-seventh address that a command line can have; none names a host of another machine."""
    return [url for url in odd_urls()[::97] if "\0" not in url and url.isprintable()]


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_shows_a_part_of_a_password(name: str, tmp_path: Path) -> None:
    words = COMMANDS[name]
    orders = tmp_path / "orders.csv"
    orders.write_text("order_id,quantity\na,1\n")
    words = tuple(str(orders) if word == orders.name else word.replace("/o.db", f"/{tmp_path}/o.db") for word in words)
    shown = {}
    for url in usable():
        done = ran(*words, url, url=None)
        assert done.returncode in {1, 2}, (url, done)
        shown[url] = done.stdout + done.stderr
    assert {url: text for url, text in shown.items() if leaks(text)} == {}


COMMANDS_THAT_START: Final = {"sell": SELL, "granularity": ("bench", "granularity")}


@pytest.mark.parametrize("option", ["--url", "--database"])
@pytest.mark.parametrize("name", COMMANDS_THAT_START)
def test_an_address_may_stand_in_a_file_or_a_variable(
    name: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address that cannot be used: the sentence shows that it was read from there, and not what it is."""
    orders, kept = tmp_path / "orders.csv", tmp_path / "address"
    orders.write_text("order_id,quantity\na,1\n")
    kept.write_text(f"mysql://u:{SECRET}@127.0.0.1:1/shop\n")
    monkeypatch.setenv("SHOP_ADDRESS", kept.read_text().strip())
    words = [str(orders) if word == orders.name else word for word in COMMANDS_THAT_START[name]]
    if name == "granularity":
        words += ["--report", str(tmp_path / "report")]
    sentences = {ran(*words, option, given, url=None).stderr for given in (f"@{kept}", "env:SHOP_ADDRESS")}
    assert len(sentences) == 1
    (sentence,) = sentences
    assert "mysql://" in sentence
    assert not leaks(sentence)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("@/nowhere/address", "the address: /nowhere/address cannot be read: No such file or directory"),
        ("@{folder}/two", "the address: {folder}/two should hold one line, the address"),
        ("env:NO_SUCH_NAME", "the variable 'NO_SUCH_NAME' that env: names is not set, or is empty"),
        (f"@redis://:{SECRET}@127.0.0.1:1/0", "the address: *** cannot be read: No such file or directory"),
        (f"@:{SECRET}@127.0.0.1:1", "the address: *** cannot be read: No such file or directory"),
        (f"env:redis://:{SECRET}@127.0.0.1:1/0", "the variable *** that env: names is not set, or is empty"),
        ("env:", "the variable '' that env: names is not set, or is empty"),
    ],
)
def test_a_file_or_variable_without_an_address_gets_a_sentence(given: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "two").write_text("redis://one\nredis://two\n")
    (tmp_path / "orders.csv").write_text("order_id,quantity\na,1\n")
    words = ["sell", str(tmp_path / "orders.csv"), *SELL[2:], "--url", given.format(folder=tmp_path)]
    done = ran(*words, url=None)
    assert done.returncode == 2
    assert done.stderr.endswith(f"{sentence.format(folder=tmp_path)}\n")
    assert not leaks(done.stderr)
