"""`segmented pool open --profile`: what it opens, what it shows, and what it refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from segmented.servers import ValkeyServer
from tests.support.command_line import ran

SKU: Final = "concert"


def rows_of(shown: str) -> dict[str, str]:
    return dict(line.split("\t") for line in shown.splitlines() if line.count("\t") == 1)


def test_a_pool_is_opened_with_a_profile_and_shown_with_it(
    start_valkey: Callable[..., ValkeyServer], data_folder: Path
) -> None:
    url = start_valkey(data_folder, config={"appendfsync": "always"}).url
    words = ["pool", "open", SKU, "--stock", "100", "--segments", "4"]
    done = ran(*words, "--profile", "fsync/500ms", url=url)
    assert (done.returncode, done.stderr, rows_of(done.stdout)["profile"]) == (0, "", "fsync/500ms")
    assert ran(*words, url=url).returncode == 0  # an open pool keeps its profile
    assert ran(*words, "--profile", "fsync", url=url).returncode == 1
    assert json.loads(ran("pool", "show", SKU, "--json", "-", url=url).stdout)["profile"] == "fsync/500ms"


def test_a_profile_that_the_server_or_nobody_knows_is_refused_and_nothing_is_opened(valkey: ValkeyServer) -> None:
    words = ["pool", "open", SKU, "--stock", "100", "--segments", "4", "--profile"]
    replicated = ran(*words, "replicated:1", url=valkey.url)
    assert replicated.returncode == 2
    assert replicated.stderr == (
        "segmented: pool 'concert' cannot be opened with profile replicated:1: the server has 0 connected replicas of "
        "the 1 wanted; connect more, or ask for fewer\n"
    )
    unknown = ran(*words, "disk", url=valkey.url)
    assert (unknown.returncode, unknown.stderr.startswith("segmented: profile 'disk' is not known; give ")) == (2, True)
    assert ran("pool", "show", SKU, url=valkey.url).returncode != 0
