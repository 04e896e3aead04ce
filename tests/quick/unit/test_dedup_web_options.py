"""Options of the web middlewares that make no sense."""

from __future__ import annotations

from typing import Any

import pytest

from segmented.dedup.web import WebOptions, all_clients
from segmented.errors import InvalidInput


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"methods": "POST"}, "methods is a collection of texts, not 'POST'"),
        ({"paths": "/charges"}, "paths is a collection of texts, not '/charges'"),
        ({"headers": [7]}, r"headers is a collection of texts, not \[7\]"),
        ({"headers": ["Content-Length"]}, "the header 'content-length' belongs to one transmission"),
        ({"answer_max": -1}, "answer_max of -1 is not a whole number of 0 or more"),
        ({"request_max": 1.5}, "request_max of 1.5 is not a whole number"),
        ({"retry_after": True}, "retry_after of True is not a whole number"),
        ({"when_down": "wait"}, 'when_down is "refuse" or "run", not \'wait\''),
        ({"large_requests": None}, 'large_requests is "refuse" or "run", not None'),
        ({"timeout": -1}, "timeout of -1 s is not a waiting time"),
        ({"scope": None}, "scope is missing: name the owner of a key by what stays the same"),
        ({"scope": "tenant"}, "scope is a callable, not 'tenant'"),
        ({"payload": "body"}, "payload is a callable, not 'body'"),
        ({"keeps": 500}, "keeps is a callable, not 500"),
    ],
)
def test_bad_options_are_refused_in_one_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence) as refused:
        WebOptions(**{"scope": all_clients, **options})
    assert "\n" not in str(refused.value)
