"""Renders the comparison as a page: a pure function of the saved record, so that a test can compare them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.conformance.common import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Contender = dict[str, Any]

NOT_RUN: Final = "not run yet"
MARKS: Final = {"passes": "✓", "fails": "✗", "not offered": "-", "not run": NOT_RUN}
COUNTED: Final = ("passes", "fails", "not offered")

INTRODUCTION: Final = """\
# Celery deduplication under faults, compared

The same tasks, deduplicated in several ways, meet situations that have caused real damage: messages that arrive
twice, workers and publishers that are killed, repeats that come early, late or with another payload. Each case starts
its own `celery worker` processes and servers, kills with SIGKILL, and counts effects in a file outside all stores.
One command counts and writes this page:

```console
$ .venv/bin/python -m tests.conformance dedup compare
```

It creates an environment for each library under `.peers/` (pinned in `tests/conformance/dedup/requirements-*.txt`;
this needs a package index) and takes about five minutes per contender. `--only celery-once` runs one contender and
keeps the others' results. `--only celery-once --case F4` shows one case and changes no results.

✓ passes; ✗ fails; - does not hold either, but the contender does not offer it.
"""

RESERVATIONS: Final = """\
## How far to trust it

- The cases are ours. Most were written after a defect had been seen in one of these libraries, so the libraries that
  we examined most have the most cases against them. Choose the rows that matter to you.
- A contender passes a row if one way of causing the situation did no harm. That is not a proof.
- Celery without a library passes some rows because it has no key that could stay behind or be mixed up. The same
  order then runs as often as it is submitted.
- F1 is about an effect outside every store. A library that records before or after the body cannot guarantee exactly
  one.
- celery-once and celery-singleton are judged by two runs of an order at the same time (F4, F6, F7), not by messages
  that come again later (F8 fork, F18): their documentation promises no more. In F8 fork an order of celery-singleton
  has no effect at all, because of the defect of F8.
- celery-once and celery-singleton accept a shorter lock time than their defaults (an hour, and no end). F13 and F12
  killed then end sooner, at the cost of F7.
- Powertools and fencekit claim an order where its task runs, so a repeat is sent too, and gets the answer in its own
  result. They pass F1 because an order whose worker was killed stays claimed, for an hour and for 5 minutes: it has one
  effect if the worker was killed after it, and none if before (F8 fork, F13). With 8 s (`expires_after_seconds`) and
  5 s (`lock_ttl`) both passed F13, Powertools F19, and fencekit F8 fork, but F1 had two effects; and F7 needs a claim
  longer than the task. fencekit's key without an end in F13 is its counter of tokens.
- Powertools is made for AWS Lambda, whose context says when a run must have ended. Celery has no such context.
- Powertools can compare payloads (`payload_validation_jmespath`). That is off: `CachePersistenceLayer` 3.37.0 drops the
  hash when a run ends, and then refuses equal repeats as well.
- `Once` runs with shorter times than its defaults (a lease of 30 s, 60 s until a message is sent again). With the
  defaults, F13 and F12 killed would take longer than their rows allow.
- A defect may have been fixed since. The measured versions are below.

## How each is set up

All: late acknowledgement, `task_reject_on_worker_lost`, one message at a time, results in Redis, a visibility timeout
of an hour unless the row names one. F13 and F19 use early acknowledgement, Celery's default. If a message has to
arrive a second time and the row does not test the timeout itself, the message's age at the broker is set to the
timeout.

- segmented `Once`: `unique`, keyed by the order, answers kept for an hour, a 5 s lease, sent again after 2 s.
- celery-once: `QueueOnce`, `keys` of the order, `graceful`, so that a repeat raises no exception; its default lock
  time.
- celery-singleton: `Singleton`, `unique_on` the order; its defaults.
- Powertools: `idempotent_function` of aws-lambda-powertools around the body, with `CachePersistenceLayer`,
  `event_key_jmespath` of the order and its default `expires_after_seconds`, an hour;
  `IdempotencyAlreadyInProgressError` is retried after 5 s, three times at most.
- fencekit: `idempotent_task` around the body, with the times of its README (answers kept for 24 h, a lock of 5 min)
  and its `retry_on_in_progress`, also after 5 s and three times at most.
- Celery, deduplicating: `worker_deduplicate_successful_tasks`.
- Celery: none of these.
"""


def render(record: dict[str, Any]) -> str:
    """Return the page."""
    rows: list[dict[str, str]] = record["rows"]
    contenders: list[Contender] = record["contenders"]
    parts = [INTRODUCTION, "## Results\n", _table(rows, contenders)]
    parts += ["## What was counted\n", *_evidence(rows, contenders)]
    parts += [RESERVATIONS, "## Conditions\n", _conditions(contenders)]
    return "\n".join(parts)


def _table(rows: Sequence[Mapping[str, str]], contenders: Sequence[Contender]) -> str:
    totals = [_total(contender) for contender in contenders]
    heads = [contender["title"] for contender in contenders]
    return table(rows, heads, lambda place, row_id: _mark(contenders[place], row_id), "**✓ / ✗ / -**", *totals)


def _mark(contender: Contender, row_id: str) -> str:
    result = contender["results"].get(row_id)
    return NOT_RUN if result is None else MARKS[result["outcome"]]


def _total(contender: Contender) -> str:
    outcomes = [result["outcome"] for result in contender["results"].values()]
    return " / ".join(str(outcomes.count(one)) for one in COUNTED) if outcomes else NOT_RUN


def _evidence(rows: Sequence[Mapping[str, str]], contenders: Sequence[Contender]) -> Iterator[str]:
    """Return a line per row, in which contenders with the same count share it, then why something is not offered."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        counted: dict[str, list[str]] = {}
        for contender in contenders:
            if result := contender["results"].get(row["id"]):
                counted.setdefault(result["evidence"], []).append(contender["title"])
                if result["why"]:
                    reasons.setdefault(result["why"], {}).setdefault(row["id"], []).append(contender["title"])
        everybody = [contender["title"] for contender in contenders]
        yield f"- **{row['id']}** " + "; ".join(
            f"{'all' if names == everybody else ' + '.join(names)}: {evidence}" for evidence, names in counted.items()
        )
    yield "\nWhy a row is not offered:\n"
    for why, found in reasons.items():
        same: dict[str, list[str]] = {}
        for row_id, names in found.items():
            same.setdefault(" + ".join(names), []).append(row_id)
        yield f"- {why}: " + "; ".join(f"{names} ({', '.join(row_ids)})" for names, row_ids in same.items())
    yield ""


def _conditions(contenders: Sequence[Contender]) -> str:
    """Return a line per contender, with what differs from the first one's versions and machine."""
    lines, first = [], None
    for contender in contenders:
        conditions = contender["conditions"]
        if conditions is None:
            lines.append(f"- {contender['title']}: {NOT_RUN}")
            continue
        machine = f"{conditions['cores']} cores ({conditions['cpu_model']}), {conditions['system']}"
        parts = [*(f"{name} {version}" for name, version in sorted(conditions["versions"].items())), machine]
        first = first or parts
        own = parts if first is parts else [part for part in parts if part not in first]
        lines.append(
            f"- {contender['title']}: {conditions['date']}, commit `{conditions['commit'][:12]}`, load at the end "
            f"{conditions['load']}{'; ' if own else ''}{', '.join(own)}"
        )
    lines.append("- Results in `tests/conformance/dedup/results.json`; versions and machine as in the first line")
    return "\n".join(lines) + "\n"
