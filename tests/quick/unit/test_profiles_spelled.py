"""The text of a profile, which a pool stores and every process reads."""

from __future__ import annotations

import pytest

from segmented.errors import InvalidInput
from segmented.models.profiles import Profile, is_profile, parse_profile


@pytest.mark.parametrize(
    ("text", "profile", "wanted"),
    [
        ("memory", Profile("memory"), 0),
        ("database", Profile("database"), 0),
        ("fsync", Profile("fsync", 0, 1_000), 1),
        ("fsync/500ms", Profile("fsync", 0, 500), 1),
        ("replicated:2", Profile("replicated", 2, 1_000), 2),
        ("replicated:1/60000ms", Profile("replicated", 1, 60_000), 1),
    ],
)
def test_a_profile_is_written_as_it_is_read(text: str, profile: Profile, wanted: int) -> None:
    found = parse_profile(text)
    assert (found, str(found), found.wanted, found.waits) == (profile, text, wanted, wanted > 0)


@pytest.mark.parametrize(
    "text",
    [
        *("", "disk", "replicated", "replicated:0", "replicated:101", "replicated:1000", "replicated:-1", "fsync "),
        *("memory/5ms", "database/5ms", "fsync/0ms", "fsync/60001ms", "fsync/5s", "fsync/5", "Fsync", "replicated:٣"),
        *(None, 5, b"fsync"),
    ],
)
def test_another_text_is_refused_with_those_that_are_known(text: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_profile(text)
    assert str(caught.value) == (
        f"profile {text!r} is not known; give memory, replicated:N with 1 to 100 replicas, fsync or database; "
        "replicated:N and fsync may say how long to wait, up to 60000 ms, as in fsync/500ms"
    )


@pytest.mark.parametrize("text", ["replicated:01", "fsync/1000ms", "replicated:2/1000ms"])
def test_a_pool_stores_one_text_for_each_profile(text: str) -> None:
    assert not is_profile(text)
