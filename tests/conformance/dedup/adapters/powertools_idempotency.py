"""Powertools: `idempotent_function` around the body, keyed by the order; a repeat during the run is retried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
from aws_lambda_powertools.utilities.idempotency.exceptions import IdempotencyAlreadyInProgressError
from aws_lambda_powertools.utilities.idempotency.persistence.cache import CachePersistenceLayer

from tests.conformance.dedup.app import add_tasks, make_app
from tests.conformance.dedup.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

KEEP_SECONDS: Final = 3600
"""Powertools' default."""
RETRY_SECONDS: Final = 5

settings = Settings.from_environment()
app = make_app(settings)


def _once(body: Callable[..., Any], event_key: str) -> Callable[..., Any]:
    """Return the body with one argument, `data`, by which it is kept."""
    decorate = idempotent_function(
        data_keyword_argument="data",
        persistence_store=CachePersistenceLayer(url=settings.store),
        config=IdempotencyConfig(
            event_key_jmespath=event_key, expires_after_seconds=settings.lease_seconds or KEEP_SECONDS
        ),
    )
    kept: Callable[..., Any] = decorate(body)
    return kept


def _charge_wrap(body: Callable[..., Any]) -> Callable[..., Any]:
    def run(task: object, *, data: dict[str, Any]) -> Any:  # noqa: ANN401  # whatever the body returns
        return body(task, **data)

    once = _once(run, "order_id")

    def charge(self: object, order_id: str, quantity: int = 1) -> Any:  # noqa: ANN401  # as `run`
        return once(self, data={"order_id": order_id, "quantity": quantity})

    return charge


def _label_wrap(body: Callable[..., Any]) -> Callable[..., Any]:
    def run(*, data: dict[str, Any]) -> Any:  # noqa: ANN401  # whatever the body returns
        return body(**data)

    once = _once(run, "")

    def label(a: object, b: object = None) -> Any:  # noqa: ANN401  # as `run`
        return once(data={"a": a, "b": b})

    return label


again = {
    "autoretry_for": (IdempotencyAlreadyInProgressError,),
    "retry_kwargs": {"countdown": RETRY_SECONDS},
}
charge, label, gather = add_tasks(app, again, again, charge_wrap=_charge_wrap, label_wrap=_label_wrap)
