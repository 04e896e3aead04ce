"""Run once: rules, headers, models, plans, periods and settings."""

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery
from celery.exceptions import Ignore
from pydantic import BaseModel, field_validator

from segmented import MemoryStore
from segmented.clock import ManualClock
from segmented.dedup import once_per
from segmented.dedup.celery import Once, OnceRule, serial, unique
from segmented.dedup.celery.message import HEADER, OnceHeader, header_of
from segmented.dedup.celery.settings import OnceSettings
from segmented.dedup.web import WebOptions, all_clients
from segmented.errors import InvalidInput
from segmented.protocol import BeginRun

WHOLE = OnceHeader("m", "k", "p", follows="f", is_claimed=True, is_put_off=True, round=3)
PLAIN = {"message": "m", "key": "k", "payload_print": ""}


def test_a_header_that_was_copied_to_another_message_says_nothing_about_that_one() -> None:
    assert header_of(WHOLE.carried(None), "other") is None


@pytest.mark.parametrize(
    "found",
    [
        "text",
        7,
        None,
        [PLAIN],
        {},
        {"message": "m"},
        {"message": "m", "key": "k"},
        {**PLAIN, "key": ""},
        {**PLAIN, "key": 5},
        {**PLAIN, "key": None},
        {**PLAIN, "payload_print": None},
        {**PLAIN, "follows": 1},
        {**PLAIN, "is_claimed": "yes"},
        {**PLAIN, "is_put_off": 1},
        {**PLAIN, "round": "1"},
        {**PLAIN, "round": -1},
        {**PLAIN, "round": 1.5},
        {**PLAIN, "round": True},
    ],
    ids=str,
)
def test_a_header_that_cannot_be_read_is_as_none(found: object) -> None:
    assert header_of({HEADER: found}, "m") is None


class Order(BaseModel):
    id: str
    units: int = 1


class Picky(BaseModel):
    id: str
    units: int = 1

    @field_validator("id")
    @classmethod
    def _fails(cls, value: str) -> str:
        if value == "bad":
            raise RuntimeError(value)
        return value


FORMS = (Order(id="o-7"), Order(id="o-7", units=1), {"id": "o-7"}, {"id": "o-7", "units": 1})


def whole(order: Order, gift: bool = False) -> Order:  # noqa: ARG001, FBT001, FBT002  # a task's argument
    return order


def bound(self: object, order: Order, gift: bool = False) -> Order:  # noqa: ARG001, FBT001, FBT002  # as above
    return order


def optional(order: Order | None = None, gift: bool = False) -> Order | None:  # noqa: ARG001, FBT001, FBT002  # as above
    return order


def preset(order: Order = Order(id="o-7"), gift: bool = False) -> Order:  # noqa: ARG001, B008, FBT001, FBT002  # as above
    return order


@pytest.fixture
def app() -> Iterator[Celery]:
    with closing(Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False)) as made:
        made.conf.update(once_store=MemoryStore(), task_always_eager=True)
        yield made


def task_of(app: Celery, body: Callable[..., object], rule: OnceRule, **options: object) -> Any:  # noqa: ANN401  # a task
    return app.task(base=Once, once=rule, pydantic=True, lazy=False, shared=False, **options)(body)  # type: ignore[call-overload]  # whatever Celery takes


EXPRESSIONS = (None, "{order[id]}", "{order.id}")


@pytest.mark.parametrize("rule", [unique(key, keep=60) for key in EXPRESSIONS], ids=str)
@pytest.mark.parametrize("body", [whole, bound, optional, preset])
def test_a_model_and_a_dict_with_or_without_defaults_are_one_call(
    app: Celery, body: Callable[..., object], rule: OnceRule
) -> None:
    task = task_of(app, body, rule, bind=body is bound)
    calls = [*((one,) for one in FORMS), *((one, False) for one in FORMS)]
    assert {task.delay(*call).get()["id"] for call in calls} == {"o-7"}
    assert len({task.once_key(*call) for call in calls}) == 1
    assert [task.delay(*call).is_repeat for call in calls] == [True] * len(calls)
    assert task.once_key({"id": "o-8"}) != task.once_key({"id": "o-7"})
    if body is preset:
        assert task.once_key() == task.once_key(Order(id="o-7"))


def test_a_dict_that_no_model_takes_counts_as_it_is(app: Celery) -> None:
    def picky(order: Picky) -> str:
        return order.id

    task = task_of(app, picky, unique(keep=60))
    assert task.once_key({"id": "bad"}) == task.once_key({"id": "bad"}) != task.once_key({"id": "bad", "units": 1})
    with pytest.raises(TypeError, match="missing a required argument: 'order'"):
        task.once_key()


NOON = 1_796_040_000.0


def test_a_function_runs_once_in_each_slot_whichever_process_asks_first() -> None:
    store, here, there, ran = MemoryStore(), ManualClock(NOON + 1), ManualClock(NOON + 298), list[str]()

    def report(who: str) -> str:
        ran.append(who)
        return who

    first = once_per("5m", store=store, clock=here)(report)
    second = once_per(timedelta(minutes=5), store=lambda: store, clock=there)(report)
    assert [first("a"), second("b"), first("a")] == ["a", None, None]
    there.advance(3)
    assert [second("b"), first("a")] == ["b", None]
    here.advance(300)
    assert (first("a"), ran) == (None, ["a", "b"])


@pytest.mark.parametrize("period", ["5", "m", "5 minutes", "0s", 0, -1, True, float("nan"), None])
def test_a_bad_period_is_refused(period: object) -> None:
    with pytest.raises(InvalidInput, match=r"^a period of .* is not one: give seconds from 1 on"):
        once_per(period, store=MemoryStore())  # type: ignore[arg-type]  # that is the point


@pytest.fixture
def plan_app() -> Iterator[Celery]:
    with closing(Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False)) as plan_app:
        plan_app.conf.update(task_always_eager=True, task_store_eager_result=True, once_store=MemoryStore())
        yield plan_app


def same(order: str) -> str:
    return order


def test_a_header_is_trusted_whatever_the_arguments_are(plan_app: Celery) -> None:
    """The page about it says who may write to the broker."""
    rule = unique("{order}", keep=60)
    task: Any = plan_app.task(base=Once, once=rule, name="trusting", lazy=False, shared=False)(same)
    assert task.delay("a").get() == "a"
    first = task.once_plan.identity(("a",), {})
    forged = OnceHeader("m-2", first.key, first.payload_print)
    assert task.apply_async(("b",), task_id="m-2", headers=forged.carried(None)).get() == "a"


def test_a_failed_message_that_is_delivered_again_leaves_the_stored_error_alone(plan_app: Celery) -> None:
    runs: list[str] = []

    def body(order: str) -> None:
        runs.append(order)
        raise ValueError("no such card")

    task: Any = plan_app.task(base=Once, once="{order}", name="failing", lazy=False, shared=False)(body)
    first = task.apply(("a",), task_id="m")
    again = task.apply(("a",), task_id="m")
    assert (first.state, again.state, runs) == ("FAILURE", "IGNORED", ["a"])
    stored = plan_app.backend.get_result("m")
    assert (type(stored), str(stored)) == (ValueError, "no such card")


def test_a_message_with_a_serializer_of_its_own_is_put_back_with_it(plan_app: Celery) -> None:
    """Its argument has no form in JSON, so the broker would deliver it again and again at once."""

    def odd(order: str, _: object) -> str:
        return order

    plan_app.conf.task_always_eager = False
    task: Any = plan_app.task(base=Once, once=serial("{order}"), name="odd", lazy=False, shared=False)(odd)
    record = task.once_plan.record(task.once_key("a", frozenset()))
    plan_app.conf.once_store.execute(
        BeginRun(record, "first", "h", "", "odd", 60_000, 60_000, "none", "message", at_once=1)
    )
    handle = task.apply_async(("a", frozenset()), serializer="pickle")

    def taken() -> Any:  # noqa: ANN401  # kombu's message
        with plan_app.connection() as connection, connection.channel() as channel:
            return channel.basic_get("celery", no_ack=True)  # type: ignore[attr-defined]  # its stubs do not know of it

    task.push_request(called_directly=False, is_eager=False, **taken().headers)
    with pytest.raises(Ignore):
        task("a", frozenset())
    again = taken()
    assert (again.headers["id"], again.content_type) == (handle.id, "application/x-python-serialize")


@pytest.fixture
def settings_app() -> Celery:
    return Celery("shop", set_as_current=False)


def test_a_setting_that_is_changed_after_it_was_read_is_seen(settings_app: Celery) -> None:
    settings = OnceSettings(settings_app)
    assert settings.get().url == ""
    settings_app.conf.once_url = "redis://one"
    assert settings.get().url == "redis://one"
    settings_app.conf.update(once_url="redis://two")
    assert settings.get().url == "redis://two"


def test_a_namespace_that_cannot_be_part_of_a_key_is_refused_each_time(settings_app: Celery) -> None:
    settings = OnceSettings(settings_app)
    settings_app.conf.once_namespace = "x" * 101
    for _ in range(2):
        with pytest.raises(InvalidInput, match="has 101 characters; the maximum is 100"):
            settings.get()
    settings_app.conf.once_namespace = "short"
    assert settings.get().namespace == "short"


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


# What a `Once` task is, apart from how it runs: whose plan it has, and what a body that calls its own task gets.


def new_app(store: MemoryStore | None = None, *, name: str = "shop", is_eager: bool = False) -> Celery:
    app = Celery(name, broker="memory://", backend="cache+memory://", set_as_current=False)
    app.conf.update(once_store=store or MemoryStore(), task_always_eager=is_eager)
    return app


@pytest.fixture
def eager() -> Iterator[Celery]:
    with closing(new_app(is_eager=True)) as app:
        yield app


def same_order(order_id: str) -> str:
    return order_id


def test_a_rule_without_the_base_that_reads_it_is_refused_when_the_task_is_made() -> None:
    with closing(new_app()) as app:
        with pytest.raises(Exception, match="once") as error:  # Python 3.11 wraps it
            app.task(once=unique("{order_id}"), name="shop.plain", lazy=False, shared=False)(same_order)
        refused = error.value if isinstance(error.value, InvalidInput) else error.value.__cause__
        assert isinstance(refused, InvalidInput)
        said = "task 'same_order' has once=..., but it would not be deduplicated: give it base=Once, too"
        assert str(refused).splitlines()[0] == said
        assert "shop.plain" not in app.tasks
        app.task(base=Once, once=unique("{order_id}"), name="shop.once", lazy=False, shared=False)(same_order)


def test_a_message_keeps_its_key_until_it_expires_however_it_is_put_off() -> None:
    clock = ManualClock()
    with closing(new_app(MemoryStore(clock=clock))) as app:
        charge: Any = app.task(base=Once, once="{order_id}", name="shop.expiring")(same_order)
        first = charge.apply_async(("o-9",), countdown=7, expires=10)
        clock.advance(9.0)
        assert charge.apply_async(("o-9",), expires=1) == first
        clock.advance(1.1)
        assert charge.delay("o-9") != first


def test_a_call_that_goes_round_the_record_is_refused_when_the_task_is_made(eager: Celery) -> None:
    """Flask's pages show such a class, for a context of the application."""

    class InContext(Once):
        abstract = True

        def __call__(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # as Celery's own
            return self.run(*arguments, **options)

    class Right(Once):
        abstract = True

        def __call__(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # as Celery's own
            return super().__call__(*arguments, **options)

    with pytest.raises(InvalidInput) as caught:
        eager.task(base=InContext, once="{order_id}", name="shop.flask", lazy=False, shared=False)(same_order)
    assert str(caught.value) == (
        "task 'shop.flask' would run for every message, since InContext.__call__ calls self.run: let it return "
        "super().__call__(*args, **kwargs)"
    )
    task: Any = eager.task(base=Right, once=unique("{order_id}", keep=60), name="shop.right", lazy=False, shared=False)(
        same_order
    )
    assert [task.delay("o-7").is_repeat for _ in range(2)] == [False, True]
