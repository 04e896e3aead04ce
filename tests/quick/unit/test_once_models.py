"""Tasks with `pydantic=True`: a model and each dict that stands for it are one argument, with one key."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery
from pydantic import BaseModel, Field, field_validator

from segmented import MemoryStore
from segmented.dedup.celery import Once, unique
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from segmented.dedup.celery import OnceRule


class Order(BaseModel):
    id: str
    units: int = 1


class Named(BaseModel):
    id: str = Field(alias="orderId")
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


@pytest.mark.parametrize("rule", [unique(keep=60), unique("{order[id]}", keep=60)], ids=["whole", "expression"])
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


def test_a_model_counts_as_celery_sends_it(app: Celery) -> None:
    def named(order: Named) -> str:
        return order.id

    task = task_of(app, named, unique(keep=60), pydantic_dump_kwargs={"by_alias": True})
    forms = (Named(orderId="o-7"), {"orderId": "o-7"}, {"orderId": "o-7", "units": 1})
    assert len({task.once_key(one) for one in forms}) == 1


def test_a_dict_that_no_model_takes_counts_as_it_is(app: Celery) -> None:
    def picky(order: Picky) -> str:
        return order.id

    task = task_of(app, picky, unique(keep=60))
    assert task.once_key({"id": "bad"}) == task.once_key({"id": "bad"}) != task.once_key({"id": "bad", "units": 1})
    with pytest.raises(TypeError, match="missing a required argument: 'order'"):
        task.once_key()


def test_a_task_without_pydantic_gets_its_dict_as_it_is(app: Celery) -> None:
    task: Any = app.task(base=Once, once=unique(keep=60), lazy=False, shared=False)(whole)
    assert task.once_key({"id": "o-7"}) != task.once_key({"id": "o-7", "units": 1})


@pytest.mark.parametrize(
    ("key", "payload", "what"), [("{order.id}", True, "key"), ("{order[id]}", "{order.id}", "payload")]
)
def test_an_expression_that_reads_an_attribute_is_told_what_to_write(
    app: Celery,
    key: str,
    payload: str | bool,  # noqa: FBT001  # an option of the rule
    what: str,
) -> None:
    task = task_of(app, whole, unique(key, payload=payload, keep=60))
    sentence = (
        rf"^{what} expression '{{order\.id}}' of .*\.whole: 'order\.id' leads nowhere: .*; an item is read as \[id\]$"
    )
    for one in FORMS:
        with pytest.raises(InvalidInput, match=sentence):
            task.delay(one)
