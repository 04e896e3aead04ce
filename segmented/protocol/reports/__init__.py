"""Reports of processes for `segmented watch`, every two seconds: refused orders, and the tasks of a worker."""

from __future__ import annotations

import json
from dataclasses import field
from typing import TYPE_CHECKING, Final

from segmented.keys import REPORTS
from segmented.protocol.base import Operation, is_one
from segmented.protocol.wire import Call, pairs_in, plain_call, readable, script_call
from segmented.values import light_dataclass

if TYPE_CHECKING:
    from segmented.protocol.wire import Reply

LIFE_MS: Final = 10_000
"""Time after which a process that does not report again is not shown any more."""
PROCESSES_MAX: Final = 200


@light_dataclass(frozen=True, slots=True)
class ProcessReport:
    """Refusals and tasks of one process since its start."""

    process: str
    """Host and process id."""
    refused: dict[str, dict[str, int]] = field(default_factory=dict)
    """Orders that were refused: sku -> reason -> how many."""
    is_worker: bool = False
    doing: tuple[str, ...] = ()
    """Tasks that run in it."""
    taken: int = 0
    """Messages that the worker has taken."""
    taken_ago_ms: int | None = None
    """Age of the last one when the process reported; None: it has taken none."""


@light_dataclass(frozen=True, slots=True)
class ReportProcess(Operation[bool]):
    """Replace the report of a process; returns False if too many processes report."""

    report: ProcessReport

    def call(self) -> Call:
        said = self.report
        content = [said.refused, said.is_worker, said.doing, said.taken, said.taken_ago_ms]
        return script_call("report_process", [REPORTS], said.process, json.dumps(content), LIFE_MS, PROCESSES_MAX)

    answer = is_one


@light_dataclass(frozen=True, slots=True)
class ReadReports(Operation[tuple[ProcessReport, ...]]):
    """Read the reports of the processes that are alive, sorted by process."""

    def call(self) -> Call:
        return plain_call("HGETALL", REPORTS)

    def answer(self, reply: Reply) -> tuple[ProcessReport, ...]:
        found = {readable(process): readable(content).partition("\t") for process, content in pairs_in(reply)}
        newest = max((int(at) for at, _, _ in found.values()), default=0)
        reports = []
        for process, (at, _, content) in sorted(found.items()):
            if newest - int(at) <= LIFE_MS:
                refused, is_worker, doing, taken, taken_ago_ms = json.loads(content)
                reports.append(ProcessReport(process, refused, is_worker, tuple(doing), taken, taken_ago_ms))
        return tuple(reports)
