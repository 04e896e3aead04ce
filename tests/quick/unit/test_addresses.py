import pytest
from redis.connection import SSLConnection, parse_url

from segmented.errors import InvalidInput
from segmented.masking import masked
from segmented.stores.redis.addresses import parse_address

SECRET = "open sesame/#1"
QUOTED = "open%20sesame%2F%231"


@pytest.mark.parametrize("mark", ["/", "?", "#", "/0?", "?a=", "@/", "@#"])
@pytest.mark.parametrize(
    "form",
    [
        "redis://:{}@host",
        "redis://user:{}@host:6379/0",
        "rediss://:{}@host",
        "unix://:{}@/run/x.sock",
        "redis+sentinel://:{}@host/service",
        "redis+cluster://:{}@host",
        "redis://:{}",
        "redis://user:{}",
    ],
)
def test_no_piece_of_a_password_that_was_not_encoded_is_printed(form: str, mark: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_address(form.format(f"open{mark}sesame"))
    assert "must be percent-encoded" in str(caught.value)
    assert "open" not in str(caught.value)
    assert "sesame" not in str(caught.value)


def test_account_and_options_reach_the_driver_as_they_were_meant() -> None:
    url = f"rediss+sentinel://us%40er:{QUOTED}@one:1,two:2/stock/1?ssl_ca_certs=%2Fetc%2Fc%20a.pem&socket_timeout=2.5"
    found = parse_url(parse_address(url).node_url)
    assert found == {
        "host": "one",
        "port": 1,
        "db": 1,
        "username": "us@er",
        "password": SECRET,
        "ssl_ca_certs": "/etc/c a.pem",
        "socket_timeout": 2.5,
        "connection_class": SSLConnection,
    }


def test_sentinels_may_have_an_account_of_their_own() -> None:
    found = parse_address(f"redis+sentinel://one/stock?sentinel_username=guard&sentinel_password={QUOTED}&protocol=3")
    assert (found.sentinel_username, found.sentinel_password) == ("guard", SECRET)
    options = parse_url(found.node_url)
    assert (options.pop("host"), options.pop("port"), options.pop("db")) == ("one", 26379, 0)
    assert {name: int(value) for name, value in options.items()} == {"protocol": 3}  # a text before redis-py 7


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (
            "redis+sentinels://one/stock",
            "redis+sentinel://HOST:PORT/SERVICE for the master that Sentinels name, or with redis+cluster://",
        ),
        ("redis+sentinel://", "each host is NAME"),
        ("redis+sentinel://one,/stock", "each host is NAME"),
        ("redis+sentinel://one:0/stock", "each host is NAME"),
        ("redis+sentinel://[::1/stock", "each host is NAME"),
        ("redis+sentinel://o ne/stock", "each host is NAME"),
        ("redis+sentinel://one", "/SERVICE"),
        ("redis+sentinel://one/st%20ock", "/SERVICE"),
        ("redis+sentinel://one/stock/first", "/SERVICE"),
        ("redis+cluster://one/1", "only database 0"),
        ("redis+cluster://one?db=1", "only database 0"),
        ("redis+cluster://one?db=x", "the option db should be a whole number, 0 or more"),
        ("redis+cluster://one?sentinel_password=x", "redis+sentinel:// only"),
        ("redis+sentinel://one,password=sesame/stock", "each host is NAME"),
        (f"redis+sentinel://user:{SECRET}@one/stock", "percent-encoded"),
        ("redis+cluster://user:12/sesame@one", "percent-encoded"),
        ("redis+sentinel://user:se#sesame@one/stock", "percent-encoded"),
    ],
)
def test_what_is_not_an_address_is_told_in_one_sentence_without_passwords(url: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_address(url)
    sentence = str(caught.value)
    assert sentence.startswith(f"{masked(url)!r} is not a Redis URL: ")
    assert reason in sentence
    assert "sesame" not in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("url", "without_passwords"),
    [
        ("rediss://one?ssl_password=sesame", "rediss://one?ssl_password=***"),
        ("redis://one?pasword=sesame&db=1", "redis://one?pasword=***&db=1"),
        ("redis://one?Password=sesame", "redis://one?Password=***"),
        ("redis://one?auth=sesame", "redis://one?auth=***"),
        ("redis://one?sesame", "redis://one?***"),
        ("redis://one?db=0,password=sesame", "redis://one?db=***"),
        ("redis://one/0#sesame", "redis://one/0#***"),
        ("redis+sentinel://one/stock?sentinel_pasword=sesame", "redis+sentinel://one/stock?sentinel_pasword=***"),
        ("redis+cluster://one,two?ssl_password=sesame", "redis+cluster://one,two?ssl_password=***"),
        ("redis://one:7801,password=sesame", "redis://***"),
        ("one:6379,password=sesame,ssl=true", "***"),
        ("redis://one:6379/0,password=sesame", "redis://***"),
        ("redis://sesame@one", "redis://***@one"),
        ("redis://sesame:@one", "redis://***@one"),
        ("redis://one?password=a@sesame", "redis://***"),
        (":sesame@redis://one", "***"),
        ("redis:u:sesame@one", "***"),
        ("unix:///run/a:b@c.sock?db=1", "unix:///run/a:b@c.sock?db=1"),
        ("sqlite:////data/a@b:c", "sqlite:////data/a@b:c"),
        ("amqp://u:sesame@one;amqp://u:sesame@two//", "amqp://u:***@two//"),
        (
            "redis+socket:///run/x.sock?virtual_host=1&pasword=sesame",
            "redis+socket:///run/x.sock?virtual_host=1&pasword=***",
        ),
        ("postgresql://localhost:1/x?pasword=sesame", "postgresql://localhost:1/x?pasword=***"),
        ("postgresql://sesame@/x?host=%2Frun", "postgresql://***@/x?host=%2Frun"),
        ("host=one password=sesame", "***"),
        ("sesame", "***"),
        ("localhost:6379/0", "localhost:6379/0"),
        ("[::1]:6379", "[::1]:6379"),
        ("me:sesame", "***"),
    ],
)
def test_only_what_is_known_to_be_harmless_is_shown(url: str, without_passwords: str) -> None:
    assert masked(url) == without_passwords


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("retry=3", "there is no option retry"),
        ("credential_provider=x", "there is no option credential_provider"),
        (
            "socket_keepalive_options=5&socket_keepalive=1",
            "there is no option socket_keepalive_options; did you mean socket_keepalive?",
        ),
        ("cache_config=x", "there is no option cache_config"),
        ("foo=1", "there is no option foo"),
        ("pasword=sesame", "there is no option pasword; did you mean password?"),
        ("PASSWORD=sesame", "there is no option PASSWORD; did you mean password?"),
        ("sesame", "each option is NAME=VALUE, separated by &"),
        ("protocol=7", "the option protocol should be 2 or 3"),
        ("encoding=utf-16", "the option encoding should be one that a server can read: use utf-8"),
        ("encoding=sesame", "the option encoding should be one that a server can read: use utf-8"),
        ("encoding_errors=x", "the option encoding_errors should be one of strict, ignore, replace"),
        ("socket_timeout=abc", "the option socket_timeout should be a number of seconds, 0.001 or more"),
        ("socket_timeout=inf", "the option socket_timeout should be a number of seconds, 0.001 or more"),
        ("max_connections=0", "the option max_connections should be a whole number, 1 or more"),
        ("db=x", "the option db should be a whole number, 0 or more"),
    ],
)
@pytest.mark.parametrize("url", ["redis://one", "redis+sentinel://one/stock", "redis+cluster://one"])
def test_an_option_that_cannot_be_is_named(url: str, query: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_address(f"{url}?{query}")
    assert str(caught.value) == f"{masked(f'{url}?{query}')!r} is not a Redis URL: {reason}"
    assert "sesame" not in masked(f"{url}?{query}") or query.startswith("encoding")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://one?ssl_password=sesame", "the option ssl_password needs TLS: begin with rediss://"),
        ("redis+cluster://one?ssl_ca_certs=x", "the option ssl_ca_certs needs TLS: begin with rediss+cluster://"),
        ("redis+sentinel://one/s?ssl=1", "there is no option ssl: for TLS begin with rediss+sentinel://"),
        ("rediss://one?ssl_cert_reqs=x", "the option ssl_cert_reqs should be one of none, optional, required"),
        ("unix:///x?socket_keepalive=1", "the option socket_keepalive is for TCP, not for a Unix socket"),
        ("redis://one?sentinel_password=x", "sentinel_username and sentinel_password are options of redis+sentinel://"),
    ],
)
def test_an_option_of_another_kind_of_address_is_refused(url: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_address(url)
    assert str(caught.value).startswith(f"{masked(url)!r} is not a Redis URL: {reason}")
