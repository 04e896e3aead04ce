"""What a `Once` task is, apart from how it runs: whose plan it has, and what a body that calls its own task gets."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from celery import Celery

from segmented import MemoryStore
from segmented.dedup.celery import Once, unique
from segmented.errors import InvalidInput
from segmented.testing import ManualClock


def new_app(store: MemoryStore | None = None, *, name: str = "shop", is_eager: bool = False) -> Celery:
    app = Celery(name, broker="memory://", backend="cache+memory://", set_as_current=False)
    app.conf.update(once_store=store or MemoryStore(), task_always_eager=is_eager)
    return app


@pytest.fixture
def eager() -> Iterator[Celery]:
    with closing(new_app(is_eager=True)) as app:
        yield app


def same(order_id: str) -> str:
    return order_id


def test_a_rule_without_the_base_that_reads_it_is_refused_when_the_task_is_made() -> None:
    with closing(new_app()) as app:
        with pytest.raises(Exception, match="once") as error:  # Python 3.11 wraps it
            app.task(once=unique("{order_id}"), name="shop.plain", lazy=False, shared=False)(same)
        refused = error.value if isinstance(error.value, InvalidInput) else error.value.__cause__
        assert isinstance(refused, InvalidInput)
        said = "task 'same' has once=..., but it would not be deduplicated: give it base=Once, too"
        assert str(refused).splitlines()[0] == said
        assert "shop.plain" not in app.tasks
        app.task(base=Once, once=unique("{order_id}"), name="shop.once", lazy=False, shared=False)(same)


def test_a_message_keeps_its_key_until_it_expires_however_it_is_put_off() -> None:
    clock = ManualClock()
    with closing(new_app(MemoryStore(clock=clock))) as app:
        charge: Any = app.task(base=Once, once="{order_id}", name="shop.expiring")(same)
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
        eager.task(base=InContext, once="{order_id}", name="shop.flask", lazy=False, shared=False)(same)
    assert str(caught.value) == (
        "task 'shop.flask' would run for every message, since InContext.__call__ calls self.run: let it return "
        "super().__call__(*args, **kwargs)"
    )
    task: Any = eager.task(base=Right, once=unique("{order_id}", keep=60), name="shop.right", lazy=False, shared=False)(
        same
    )
    assert [task.delay("o-7").is_repeat for _ in range(2)] == [False, True]
