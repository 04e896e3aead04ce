"""What settings that are fine each by itself must be together."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kombu.transport import TRANSPORT_ALIASES
from redis.connection import parse_url

from segmented.celery.broker import SOCKET_SCHEMES, TCP_SCHEMES, broker_beside
from segmented.celery.endpoints import broker_servers, stock_servers
from segmented.errors import InvalidInput
from segmented.models import check_id, shortened
from segmented.models.ids import SKU_BYTES_MAX
from segmented.orders.engine import parse
from segmented.stores.redis.addresses import Deployment, parse_address, shown

if TYPE_CHECKING:
    from segmented.celery.settings import WorkerSettings

STEP: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
LIMITS_IN_VISIBILITY: Final = 2
"""A task that is ended by force has its message requeued before the broker does that by itself."""


def check_settings(settings: WorkerSettings) -> None:
    """Raise InvalidInput with one sentence, in which no password stands."""
    _check_url(settings)
    _check_database(settings)
    if settings.broker is not None:
        _check_broker(settings, settings.broker_url)
    _check_times(settings)
    for sku in settings.skus:
        check_id(sku, "SEGMENTED_SKUS: sku", bytes_max=SKU_BYTES_MAX)
    if settings.step is not None and not STEP.fullmatch(settings.step):
        message = f"SEGMENTED_STEP is {shortened(settings.step)}: it should be module:function"
        raise InvalidInput(message)


def broker_is_said(settings: WorkerSettings) -> bool:
    """Was one of the two addresses chosen? With neither, all is on this machine, in two databases of one server."""
    return bool({"url", "broker"} & settings.model_fields_set)


def is_on_stock_server(settings: WorkerSettings) -> bool:
    """Do stock and broker share a server, as far as their addresses tell?"""
    stock = {named.endpoint for named in stock_servers(settings.url.get_secret_value())}
    return any(named.endpoint in stock for named in broker_servers(settings.broker_url))


def derived_broker(settings: WorkerSettings) -> str:
    """Return the broker of an app of ours where none is said. Raises InvalidInput where it has to be."""
    url = settings.url.get_secret_value()
    if parse_address(url).deployment is not Deployment.SINGLE:
        message = "SEGMENTED_BROKER is not set, and no broker can be derived from Sentinels or a cluster: name a server"
        raise InvalidInput(message)
    if broker_is_said(settings) and not settings.broker_on_stock_server:
        raise InvalidInput(_endangering("SEGMENTED_BROKER is not set, and would be"))
    return broker_beside(url)


def check_apart(settings: WorkerSettings, broker: str, named: str) -> None:
    """Raise InvalidInput where a broker, which a sentence calls `named`, is not apart from the stock."""
    stock, servers = stock_servers(settings.url.get_secret_value()), broker_servers(broker)
    if not set(stock).isdisjoint(servers):
        message = f"{named} names the database of SEGMENTED_URL: stock and messages must not share one"
        raise InvalidInput(message)
    if settings.broker_on_stock_server or not broker_is_said(settings):
        return
    if not {one.endpoint for one in stock}.isdisjoint(one.endpoint for one in servers):
        raise InvalidInput(_endangering(f"{named} is"))


def _endangering(what: str) -> str:
    return (
        f"{what} on the server of SEGMENTED_URL, where a full queue stops the sale: "
        "name another server, or set SEGMENTED_BROKER_ON_STOCK_SERVER=1"
    )


def _check_url(settings: WorkerSettings) -> None:
    url = settings.url.get_secret_value()
    try:
        address = parse_address(url)
    except InvalidInput as error:
        message = f"SEGMENTED_URL cannot be used: {error}"
        raise InvalidInput(message) from None
    if address.deployment is Deployment.SINGLE:
        try:
            parse_url(url)
        except ValueError:  # it may quote a piece of the password
            message = (
                f"SEGMENTED_URL cannot be used: {shown(url)!r} is not a Redis URL, as redis://:PASSWORD@HOST:6379/0 is"
            )
            raise InvalidInput(message) from None


def _check_database(settings: WorkerSettings) -> None:
    try:
        parse(settings.database.get_secret_value())
    except InvalidInput as error:
        message = f"SEGMENTED_DATABASE cannot be used: {error}"
        raise InvalidInput(message) from None


def _check_broker(settings: WorkerSettings, broker: str) -> None:
    scheme = broker.partition("://")[0]
    if "://" not in broker or scheme.partition("+")[0] not in {*TRANSPORT_ALIASES, *SOCKET_SCHEMES, *TCP_SCHEMES}:
        message = f"SEGMENTED_BROKER cannot be used: {shown(broker)} is no broker that Celery knows"
        raise InvalidInput(message)
    check_apart(settings, broker, "SEGMENTED_BROKER")


def _check_times(settings: WorkerSettings) -> None:
    limit = settings.task_time_limit
    if settings.visibility_timeout < LIMITS_IN_VISIBILITY * limit:
        message = (
            f"SEGMENTED_VISIBILITY_TIMEOUT is {settings.visibility_timeout:g} s: it should be at least twice "
            f"SEGMENTED_TASK_TIME_LIMIT, which is {limit:g} s"
        )
        raise InvalidInput(message)
    if settings.segment_wait >= limit:
        message = (
            f"SEGMENTED_SEGMENT_WAIT is {settings.segment_wait:g} s: it should be less than "
            f"SEGMENTED_TASK_TIME_LIMIT, which is {limit:g} s"
        )
        raise InvalidInput(message)
    for name, seconds in (("SEGMENT_TTL", settings.segment_ttl), ("PUBLISH_AFTER", settings.publish_after)):
        if settings.hold < seconds:
            message = (
                f"SEGMENTED_HOLD is {settings.hold:g} s: it should be at least SEGMENTED_{name}, which is {seconds:g} s"
            )
            raise InvalidInput(message)
