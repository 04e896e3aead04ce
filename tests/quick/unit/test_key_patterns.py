"""A key of ours is found again by its pattern, and says its namespace."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from segmented.keys import lock_keys
from segmented.once_keys import once_claims, once_keys, once_namespace, once_pattern


@pytest.mark.parametrize("namespace", ["tasks", "a:b", "{od:d}", "50%7D", ""])
def test_the_namespace_is_read_from_every_key_of_it(namespace: str) -> None:
    keys = once_keys(namespace, "k")
    for found in (keys.record, f"{keys.messages}:m", keys.claims, once_claims(namespace, 31)):
        assert once_namespace(found) == namespace


@pytest.mark.parametrize("foreign", [lock_keys("once").lock, "seg:once:plain", "seg:once:{tag}:key:k", "other"])
def test_other_keys_have_no_namespace(foreign: str) -> None:
    assert once_namespace(foreign) is None


def test_a_pattern_matches_its_keys_in_every_namespace_and_no_other() -> None:
    assert fnmatchcase(once_claims("{odd}", 3), once_pattern())
    assert not fnmatchcase(once_keys("tasks", "k").record, once_pattern())
    assert fnmatchcase(once_keys("tasks", "k1").record, once_pattern("k1"))
    assert not fnmatchcase(once_keys("tasks", "k2").record, once_pattern("k1"))
    assert once_pattern("a*?[b]\\").endswith(r":key:a\*\?\[b\]\\")
