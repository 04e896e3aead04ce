"""Settings of `Once` are kept after the first look, and looked up again when they are changed."""

from __future__ import annotations

import pytest
from celery import Celery

from segmented.dedup.celery.settings import OnceSettings, namespace_of
from segmented.errors import InvalidInput


@pytest.fixture
def app() -> Celery:
    return Celery("shop", set_as_current=False)


def test_a_setting_that_is_not_set_is_none(app: Celery) -> None:
    assert OnceSettings(app).get("once_url") is None


def test_a_setting_that_is_changed_after_it_was_read_is_seen(app: Celery) -> None:
    settings = OnceSettings(app)
    assert settings.get("once_url") is None
    app.conf.once_url = "redis://one"
    assert settings.get("once_url") == "redis://one"
    app.conf.update(once_url="redis://two")
    assert settings.get("once_url") == "redis://two"


def test_a_configuration_that_is_replaced_is_read_anew(app: Celery) -> None:
    settings = OnceSettings(app)
    assert namespace_of(settings) == "shop"
    app.config_from_object({"once_namespace": "other"}, force=True)
    assert namespace_of(settings) == "other"


def test_a_setting_is_looked_up_and_checked_once(app: Celery) -> None:
    checked: list[object] = []

    def check(found: object) -> object:
        checked.append(found)
        return found

    app.conf.once_namespace = "other"
    settings = OnceSettings(app)
    assert [settings.get("once_namespace", check) for _ in range(3)] == ["other"] * 3
    assert checked == ["other"]


def test_a_namespace_that_cannot_be_part_of_a_key_is_refused_each_time(app: Celery) -> None:
    settings = OnceSettings(app)
    app.conf.once_namespace = "x" * 101
    for _ in range(2):
        with pytest.raises(InvalidInput, match="has 101 characters; the maximum is 100"):
            namespace_of(settings)
    app.conf.once_namespace = "short"
    assert namespace_of(settings) == "short"
