"""Rules of deduplicated tasks that make no sense: one sentence each, when they are made or when the task is."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("celery")

from celery import Celery

from segmented.dedup.celery import Once, OnceRule
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def app() -> Iterator[Celery]:
    with closing(Celery("rules", broker="memory://", set_as_current=False)) as made:
        yield made


def work(order_id: str, *, amount: int = 1) -> None:
    """Nothing."""


CASES: list[tuple[dict[str, Any], str]] = [
    (
        {"point": "until_done"},
        (
            "point is 'until_done': give one of until_executing, until_executed, until_expired, while_executing, "
            "until_and_while_executing, exactly_once"
        ),
    ),
    (
        {"on_publish": "ignore"},
        "on_publish is 'ignore': give one of return, raise, drop, replace, reschedule, wait, keep_last, debounce",
    ),
    ({"on_execute": "replace"}, "on_execute is 'replace': give one of return, raise, drop, reschedule, wait"),
    (
        {"point": "while_executing", "on_publish": "drop"},
        "on_publish is 'drop', but with while_executing no key is taken then: say it with on_execute",
    ),
    (
        {"point": "exactly_once", "on_publish": "replace"},
        "on_publish is 'replace', which conflicts with exactly_once: the first may have been done",
    ),
    (
        {"point": "until_expired", "window": 5, "on_publish": "debounce", "delay": 1},
        "on_publish is 'debounce', which conflicts with until_expired: the first may have been done",
    ),
    (
        {"point": "until_executing", "on_publish": "keep_last"},
        "on_publish is 'keep_last', which conflicts with until_executing: the first may have been done",
    ),
    (
        {"on_publish": "replace", "keep": 5},
        "on_publish is 'replace', which runs the newest, and keep gives repeats the result of the first",
    ),
    (
        {"on_publish": "replace", "keep_failures": 5},
        "on_publish is 'replace', which runs the newest, and keep gives repeats the result of the first",
    ),
    (
        {"on_publish": "keep_last", "payload": True},
        "on_publish is 'keep_last', which takes any payload, so payload=True is not compared",
    ),
    (
        {"on_publish": "debounce"},
        "on_publish is 'debounce', which needs a delay: how many seconds it has to be quiet",
    ),
    ({"delay_max": 5}, "on_publish is 'return', not 'debounce', so delay_max means nothing"),
    ({"delay": 5}, "on_publish is 'return', neither debounce nor reschedule, so delay means nothing"),
    (
        {"point": "until_executing", "keep": 5},
        "keep is set, but with until_executing the key is free before there is a result",
    ),
    (
        {"point": "while_executing", "keep_failures": 5},
        "keep is set, but with while_executing the key is free before there is a result",
    ),
    (
        {"point": "until_expired", "window": 5, "keep": 5},
        "keep is set, but with until_expired the window says for how long repeats get the result",
    ),
    (
        {"point": "until_expired"},
        "window is None with point until_expired: until_expired needs a window, and no other has one",
    ),
    ({"window": 5}, "window is 5 with point until_executed: until_expired needs a window, and no other has one"),
    ({"keep": -1}, "keep of -1 s is not a duration: give 0 or more"),
    ({"keep_failures": -0.5}, "keep_failures of -0.5 s is not a duration: give 0 or more"),
    ({"queue_for": -1}, "queue_for of -1 s is not a duration: give 0 or more"),
    ({"resend_after": -1}, "resend_after of -1 s is not a duration: give 0 or more"),
    ({"timeout": -1}, "timeout of -1 s is not a duration: give 0 or more"),
    ({"keep": True}, "keep is a number of seconds or a timedelta, not bool: True"),
    ({"keep": "1h"}, "keep is a number of seconds or a timedelta, not str: '1h'"),
]


@pytest.mark.parametrize(("options", "sentence"), CASES, ids=lambda part: str(part)[:40])
def test_a_rule_that_makes_no_sense_is_refused_as_it_is_made(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        OnceRule(**options)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    "options",
    [
        {"ttl": 0},
        {"ttl": -1},
        {"remember": 0},
        {"point": "until_expired", "window": 0},
        {"point": "until_expired", "window": -3},
        {"on_publish": "debounce", "delay": -1},
        {"on_publish": "debounce", "delay": 1, "delay_max": -1},
        {"on_publish": "reschedule", "delay": -2},
        {"size_max": 0},
    ],
    ids=str,
)
def test_a_time_or_size_that_is_none_is_refused_as_the_rule_is_made_and_named(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        OnceRule(**options)
    assert any(name in str(caught.value) for name in options)


KEYS: list[tuple[Any, str]] = [
    ("{orderid}", "orderid"),
    ("{order_id.", "{order_id."),
    ("always", "names no argument"),
    (OnceRule("{nobody}"), "nobody"),
    (OnceRule("{order_id}", payload="{nobody}"), "nobody"),
    (OnceRule(7), "7"),  # type: ignore[arg-type]  # that is the test
    (7, "once of task 'work' is 7: give an OnceRule, a key expression, or a callable"),
    (OnceRule, "give an OnceRule, a key expression, or a callable"),
]


@pytest.mark.parametrize(("once", "named"), KEYS, ids=lambda part: str(part)[:40])
def test_a_key_that_does_not_fit_the_task_is_refused_at_its_import_with_lazy_false(
    app: Celery, once: object, named: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        app.task(base=Once, name="work", once=once, lazy=False, shared=False)(work)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("once", "named"), KEYS, ids=lambda part: str(part)[:40])
def test_a_key_that_does_not_fit_the_task_is_refused_when_the_app_is_finalized(
    app: Celery, once: object, named: str
) -> None:
    app.task(base=Once, name="work", once=once, shared=False)(work)
    with pytest.raises(InvalidInput) as caught:
        app.finalize()
    assert named in str(caught.value)


def test_a_bound_task_is_checked_without_its_self(app: Celery) -> None:
    def bound(self: Once, order_id: str) -> None:
        """Nothing."""

    task = app.task(base=Once, name="bound", once="{order_id}", bind=True, lazy=False, shared=False)(bound)
    assert task.once_key("a") == task.once_key(order_id="a") != task.once_key("b")
    with pytest.raises(InvalidInput, match="self"):
        app.task(base=Once, name="bound2", once="{self}", bind=True, lazy=False, shared=False)(bound)


def test_a_task_of_the_base_without_a_rule_is_an_ordinary_task(app: Celery) -> None:
    task = app.task(base=Once, once=None, name="ordinary", lazy=False, shared=False)(work)
    assert task("a") is None
    with pytest.raises(TypeError, match="task 'ordinary' has no once"):
        task.once_key("a")


def test_a_task_of_the_base_without_a_rule_is_refused_with_its_name_and_the_option(app: Celery) -> None:
    class Ours(Once):
        abstract = True

    refused = pytest.raises(
        InvalidInput, match=r"^task 'silent.?' has base=Once and no once=\.\.\., so it would run for "
    )
    for base, name in ((Once, "silent"), (Ours, "silent2")):
        with refused:
            app.task(base=base, name=name, lazy=False, shared=False)(work)
    with refused:  # Celery has registered it, though its decoration failed
        app.tasks["silent"].delay("a")
    Ours.once = OnceRule("{order_id}")
    task = app.task(base=Ours, name="kept", lazy=False, shared=False)(work)
    assert task.once_key("a") != task.once_key("b")


def test_an_app_whose_every_task_has_the_base_runs_those_without_a_rule() -> None:
    app = Celery("every", task_cls=Once, set_as_current=False)
    task = app.task(name="ordinary", lazy=False, shared=False)(work)
    app.finalize()
    assert task("a") is None
    assert isinstance(app.tasks["celery.chord"], Once), "Celery's own tasks have no rule"


@pytest.mark.parametrize(
    "argument",
    [object(), float("nan"), {1: "a"}, b"a".join, "\ud800"],
    ids=["object", "nan", "key of a number", "method", "lone surrogate"],
)
def test_an_argument_that_has_no_stable_text_is_one_sentence_at_publication(app: Celery, argument: object) -> None:
    app.conf.once_url = "redis://127.0.0.1:1/2"  # not asked
    task = app.task(base=Once, name="whole", once=OnceRule(), lazy=False, shared=False)(work)
    with pytest.raises(InvalidInput) as caught:
        task.delay("a", amount=argument)
    assert "'amount'" in str(caught.value)


def test_messages_run_one_after_another_at_the_points_that_only_keep_runs_apart() -> None:
    apart = ("while_executing", "until_and_while_executing")
    assert [OnceRule("{a}", point).in_worker for point in apart] == ["reschedule", "reschedule"]  # type: ignore[arg-type]  # both are points
    assert [OnceRule("{a}", point, on_execute="return").in_worker for point in apart] == ["return", "return"]  # type: ignore[arg-type]  # both are points
    assert OnceRule("{a}").in_worker == "return"
    assert [OnceRule("{a}", point).compared for point in apart] == [False, True]  # type: ignore[arg-type]  # both are points
    assert [OnceRule("{a}", point).compares_in_worker for point in apart] == [True, False]  # type: ignore[arg-type]  # both are points


@pytest.mark.parametrize("countdown", ["3", float("inf"), float("nan")])
def test_a_countdown_that_is_no_number_of_seconds_is_one_sentence(app: Celery, countdown: float) -> None:
    task = app.task(base=Once, name="due", once="{order_id}", lazy=False, shared=False)(work)
    with pytest.raises(InvalidInput, match=f"a countdown of {countdown!r} is not a number of seconds"):
        task.apply_async(("a",), countdown=countdown)
