"""Runs a cell in its own process: `python -m bench.engine.run_cell`, started by `bench.children`.

Each line of stdin is an assignment (URLs may have passwords, which a process list would show). A fork of this process
runs it, so that the CPU time of the fork is the generator's only. When the parent ends for any reason, stdin ends, and
this process exits too. It reports in lines of JSON on stdout.

Why it forks: loading locust, celery, SQLAlchemy and the other libraries takes longer than most sales. A fork has
everything loaded, and no state of earlier forks. All forks share what an interpreter randomizes at its start (hash
seed, memory layout). So a session starts a new loader for each round: all cells of a round have the same loader, and
each cell has all of them.
"""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import os
import random
import sys
import traceback
import uuid
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NoReturn, cast

import gevent.os
import locust  # noqa: F401  # before redis and psycopg: it patches sockets, sleeping and locks for gevent
import redis
import zstandard
from gevent.monkey import get_original
from gevent.os import tp_read

from bench.conditions import named_version
from bench.engine.cell import RunAssignment
from bench.engine.measurement import run_closed, run_open
from bench.engine.sale import Sale, case_of, choice_of, refuse_case
from bench.engine.summary import noted, summarise, too_short, voided
from bench.strategies import STRATEGIES
from bench.strategies.base import StrategyContext
from segmented.errors import InvalidInput, SegmentedError
from segmented.files import write_instead
from segmented.orders import Gate, connect
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sqlalchemy import Engine

    from bench.engine.measurement import Measurement
    from bench.strategies.base import Strategy

EXIT_ORPHANED = 3


def fork_for_each_line(main: Callable[[str], int]) -> None:
    """Run each line of stdin in a fork, one after another, and report its end; return when stdin ends."""
    wait = get_original("os", "waitpid")  # gevent's version would run its loop, which is for the forks
    gc.collect()
    gc.freeze()  # otherwise a collection in a fork would copy every loaded page
    for line in iter(sys.stdin.readline, ""):
        child = gevent.os.fork()
        if not child:
            _do_and_leave(main, line)
        code = os.waitstatus_to_exitcode(wait(child, 0)[1])
        sys.stdout.write("\n" + json.dumps({"event": "left", "code": code}) + "\n")  # it may have died in mid-line
        sys.stdout.flush()


def _do_and_leave(main: Callable[[str], int], line: str) -> NoReturn:
    exit_code = 1
    try:
        exit_code = main(line)
    except BaseException:  # noqa: BLE001  # it must not continue as the loader
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)  # everything is closed, and clearing so many imports takes half a second


def say(event: str, said: Mapping[str, object]) -> None:
    """Send an event to the parent."""
    sys.stdout.write(json.dumps({"event": event, **said}) + "\n")
    sys.stdout.flush()


def leave_with_the_parent() -> None:
    """Wait for the end of stdin, and exit at once."""
    while tp_read(sys.stdin.fileno(), 1):
        pass
    os._exit(EXIT_ORPHANED)


PREFIX = "bench"
"""Beginning of the names of all pools."""
SETTINGS = ("appendonly", "appendfsync", "maxmemory-policy", "save", "io-threads")


def main(line: str) -> int:
    """Run the assignment, and return the exit code."""
    logging.getLogger("locust").addHandler(logging.NullHandler())  # the record has what its warnings about CPU say
    gevent.spawn(leave_with_the_parent)
    assignment = RunAssignment.model_validate_json(line)
    if assignment.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, assignment.cores)
    random.seed(assignment.seed)
    try:
        if assignment.own is not None:
            assignment.own.add()
        record = _measured(assignment)
    except (SegmentedError, redis.RedisError) as error:
        say("failed", {"reason": str(error) or type(error).__name__, "is_input": isinstance(error, InvalidInput)})
        return 1
    say("record", {"record": record})
    return 0


def _measured(assignment: RunAssignment) -> dict[str, Any]:
    with RedisStore.from_url(assignment.pooled_url) as store, redis.Redis.from_url(assignment.meter_url) as meter:
        engine = None
        if assignment.database is not None:
            engine = connect(assignment.database, pool_size=assignment.cell.buyers + 2)
        try:
            if engine is not None:
                Gate(engine).create()
            return _run(assignment, store, engine, meter)
        finally:
            if engine is not None:
                engine.dispose()


def _run(assignment: RunAssignment, store: RedisStore, engine: Engine | None, meter: redis.Redis) -> dict[str, Any]:
    cell = assignment.cell
    refuse_case(cell, STRATEGIES[cell.strategy])
    context = StrategyContext(
        store=store,
        engine=engine,
        segments=cell.segments,
        buyers=cell.buyers,
        section=cell.critical_section(),
        batch=cell.batch,
        url=assignment.pooled_url,
    )
    strategy, *more = strategies = [STRATEGIES[cell.strategy](context) for _ in range(cell.skus)]
    choice = choice_of(cell, assignment.seed) if more else None
    try:
        stock = _stock(assignment, strategy)
        case = case_of(cell, strategy, stock, assignment.seed, is_calibration=assignment.is_calibration)
        sale = Sale(cell, strategy, case=None if assignment.is_calibration else case, choice=choice, more=tuple(more))
        shares = [stock] * cell.skus if assignment.is_calibration else sale.shares(case.opened)
        for one, units in zip(strategies, shares, strict=True):
            one.open(f"{PREFIX}-{uuid.uuid4().hex[:8]}", units)  # an interrupted run may have left its pool
        started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        gc.collect()
        gc.freeze()  # otherwise a full collection during the sale would scan all imports
        run = run_open if cell.loop == "open" else run_closed
        measurement = run(assignment, sale, meter, lambda phase, done, total: say(phase, _told(done, total)))
        if assignment.is_calibration:
            _clear(strategies)
            return {"orders_per_s": _rate(sale, measurement), "hold_ms": _mean_hold_ms(sale)}
        say("verdict", _told(0, 1))
        verdicts = [one.judge(part.judged) for one, part in zip(strategies, sale.parts(), strict=True)]
        is_open, window_s = cell.loop == "open", measurement.window_s
        record = summarise(
            assignment,
            sale,
            measurement,
            verdicts,
            started_at=started_at,
            history=_keep(assignment, sale, measurement),
            server=_server(meter),
            more_void=voided(sale, measurement) if is_open else too_short(cell, window_s, assignment.seconds),
            notes=noted(measurement.shed, measurement.planned, cell.buyers) if is_open else (),
        )
        _clear(strategies)
        return record.model_dump(mode="json", by_alias=True)
    finally:
        for one in strategies:
            one.close()


def _clear(strategies: Iterable[Strategy]) -> None:
    for one in strategies:
        one.clear()


def _stock(assignment: RunAssignment, strategy: Strategy) -> int:
    """Return the stock to open with; some strategies cannot open as many units as a calibration would use."""
    most = strategy.calibration_stock if assignment.is_calibration else None
    return assignment.stock if most is None else min(most, assignment.stock)


def _told(done: int, total: int) -> dict[str, int]:
    return {"done": done, "total": total}


def _rate(sale: Sale, measurement: Measurement) -> float:
    if sale.recorder.failures and not sale.strategy.is_control:
        raise SegmentedError(f"{sale.cell.cell_id} could not be calibrated: {sale.recorder.failures[0]}")
    pairs = zip(sale.recorder.done, sale.recorder.sold, strict=True)
    return (
        sum(sold for done, sold in pairs if measurement.window_begin <= done <= measurement.window_end)
        / measurement.window_s
    )


def _mean_hold_ms(sale: Sale) -> float | None:
    """Return the mean hold of all calls that sold; None if none did."""
    pairs = zip(sale.recorder.granted, sale.recorder.freed, strict=True)
    holds = [freed - granted for granted, freed in pairs if granted and freed]
    return round(fmean(holds) * 1_000, 3) if holds else None


def _keep(assignment: RunAssignment, sale: Sale, measurement: Measurement) -> tuple[str | None, str | None]:
    """Write the history of calls; return its file and the digest of the content."""
    if assignment.history is None:
        return None, None
    file = Path(assignment.history)
    packed = zstandard.ZstdCompressor().compress("\n".join(sale.recorder.lines(measurement.began)).encode())
    write_instead(file, packed)
    return f"{file.parent.name}/{file.name}", hashlib.sha256(packed).hexdigest()


def _server(client: redis.Redis) -> dict[str, str]:
    info = client.info("server")
    config = cast("dict[str, Any]", client.config_get(*SETTINGS))
    name, version = named_version(info)
    return {"name": name, "version": version, **{key: str(value) for key, value in sorted(config.items())}}


if __name__ == "__main__":
    fork_for_each_line(main)
