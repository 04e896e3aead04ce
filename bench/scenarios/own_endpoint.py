"""Buyers that order at your shop's own endpoint, as a locustfile; at the end the shop's answers meet the pool's books.

    SEGMENTED_URL=redis://... locust -f bench/scenarios/own_endpoint.py --host http://localhost:8000 --sku mug \
        --path /orders --body '{"order_id": "{order_id}", "quantity": 1}'

Each request orders once, under a new order id, as a POST. An answer 2xx means sold, and a status of `--refused` means
not sold; any other answer, or none, means unknown. When the test stops, every order that the shop called sold must be
confirmed in the pool, and none that it refused may hold units; the pool is audited as well. The exit code is 1 if a
promise was broken.
"""

from __future__ import annotations

import itertools
import json
import logging
import sys
import time
import uuid
from typing import TYPE_CHECKING, Any, Final

import gevent
from locust import HttpUser, events, task  # before redis: it patches sockets, sleeping and locks for gevent
from locust.runners import WorkerRunner

from bench.load.page import Answers, PoolPage, broken_books, guard_page, url
from segmented.errors import InvalidInput, SegmentedError
from segmented.stock import find_pool
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from locust.argument_parser import LocustArgumentParser
    from locust.env import Environment

    from segmented.stock import Pool, ShardedPool

JSON: Final = "application/json"
LOOK_SECONDS: Final = 0.5
EXIT_BAD_INPUT: Final = 2

_log = logging.getLogger(__name__)
_answers = Answers()
guard_page()


@events.init_command_line_parser.add_listener  # type: ignore[untyped-decorator]  # Locust has no types for it
def add_options(parser: LocustArgumentParser, **_: object) -> None:
    """Add the options of the endpoint; Locust's page shows them as fields."""
    add = parser.add_argument
    add("--sku", env_var="LOCUST_SKU", required=True, help="the pool that the shop sells from")
    add("--path", env_var="LOCUST_PATH", default="/orders", help="of the endpoint  [default: /orders]")
    add(
        "--body",
        env_var="LOCUST_BODY",
        default='{"order_id": "{order_id}", "quantity": 1}',
        help="JSON that is posted; {order_id} stands for a new id, also in --path and --header",
    )
    add("--header", action="append", default=[], help="NAME: VALUE, repeatable", include_in_web_ui=False)
    add("--answer-id", default="", help="field of the JSON answer with the order's id, if the shop makes it")
    add("--refused", default="409,410,422", help="statuses that mean not sold  [default: 409,410,422]")
    add("--settles", type=float, default=30.0, help="seconds for a shop that confirms later  [default: 30]")


@events.init.add_listener  # type: ignore[untyped-decorator]  # Locust has no types for it
def begin(environment: Environment, **_: object) -> None:
    """Show the pool on the page; collect the answers of all processes in the master or only one."""
    _check(environment.parsed_options)
    page = PoolPage(environment, lambda pool: _broken(environment, pool))
    environment.events.test_stop.add_listener(lambda **_: page.judge())  # type: ignore[no-untyped-call]  # Locust's
    if isinstance(environment.runner, WorkerRunner):
        environment.events.report_to_master.add_listener(  # type: ignore[no-untyped-call]  # Locust's
            lambda data, **_: data.update(answers=_answers.take())
        )
    else:
        environment.events.worker_report.add_listener(  # type: ignore[no-untyped-call]  # Locust's
            lambda data, **_: _answers.add(data.get("answers", {}))
        )


def _check(options: Any) -> None:  # noqa: ANN401  # a namespace that Locust fills
    """End with one sentence on bad input, before anything is sent."""
    try:
        json.loads(_filled(options.body, "locust-0"))
        for one in options.header:
            if ":" not in one:
                raise InvalidInput(f"--header {one!r} is not of the form 'NAME: VALUE'")
        with RedisStore.from_url(url()) as found:
            find_pool(found, options.sku).state()
    except ValueError as error:
        _give_up(f"--body is not JSON: {error}")
    except SegmentedError as error:
        _give_up(str(error))


def _give_up(reason: str) -> None:
    sys.stderr.write(f"{reason}\n")
    sys.exit(EXIT_BAD_INPUT)


def _broken(environment: Environment, pool: Pool | ShardedPool) -> list[str]:
    """Compare the answers with the pool, again until the shop has confirmed what it confirms later."""
    options: Any = environment.parsed_options
    until = time.monotonic() + options.settles
    while (broken := broken_books(_answers, pool.orders())) and time.monotonic() < until:
        gevent.sleep(LOOK_SECONDS)
    _log.info("answers: %s", _answers)
    return broken


class Buyer(HttpUser):
    """Orders again at once."""

    def on_start(self) -> None:
        """Begin the order ids of this user, which no other user has."""
        self.ids = map("locust-{}-{}".format, itertools.repeat(uuid.uuid4().hex[:12]), itertools.count())

    @task
    def buy(self) -> None:
        """Order once, and note what the shop answered."""
        options: Any = self.environment.parsed_options
        order_id = next(self.ids)
        headers = dict(_filled(one, order_id).split(":", 1) for one in options.header)
        with self.client.post(
            _filled(options.path, order_id),
            data=_filled(options.body, order_id).encode(),
            headers={"Content-Type": JSON, **{name: value.strip() for name, value in headers.items()}},
            name=options.path,
            catch_response=True,
        ) as response:
            status = response.status_code
            if response.ok and options.answer_id:
                order_id = _id_in(response.text, options.answer_id)
            if response.ok and not order_id:
                response.failure(f"the answer has no field {options.answer_id}")
            elif response.ok:
                _answers.sold.append(order_id)
            elif str(status) in options.refused.split(","):
                _answers.refused.append(order_id)
                response.success()
            else:
                _answers.unknown.append(order_id)


def _id_in(answer: str, name: str) -> str:
    """Return the order's id of a JSON answer; empty if it has none."""
    try:
        found = json.loads(answer)
    except ValueError:
        return ""
    return str(found.get(name, "")) if isinstance(found, dict) else ""


def _filled(template: str, order_id: str) -> str:
    return template.replace("{order_id}", order_id)
