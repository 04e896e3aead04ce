"""Renders the comparison as a page: a pure function of the saved record, so that a test can compare them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Contender = dict[str, Any]

NOT_RUN: Final = "not run yet"
MARKS: Final = {"passes": "✓", "fails": "✗", "not offered": "-", "not run": NOT_RUN}
COUNTED: Final = ("passes", "fails", "not offered")

INTRODUCTION: Final = """\
# Celery deduplication under faults, compared

The same tasks, deduplicated in several ways, were brought into situations that have hurt somebody: messages that come
twice, workers and publishers that are killed, repeats that come early, late or with another payload. Each case starts
real `celery worker` processes and servers of its own, kills with SIGKILL, and counts effects in a file outside of all
stores. This page is made by a command from what that command has counted:

```console
$ .venv/bin/python -m bench.dedup_peers compare
```

It makes an environment for each library under `.peers/` (pinned in `bench/dedup_peers/requirements-*.txt`; this needs a
package index) and takes about five minutes a contender. `--only celery-once` runs one contender and keeps the others'
results; `--only celery-once --case F4` only shows one case.

✓ passes; ✗ fails; - does not hold either, but the contender does not offer it, and the reason stands beside the count.
"""

RESERVATIONS: Final = """\
## How far to trust it

- The cases are ours. Most were written after a defect that had been seen in one of these libraries, so the libraries
  that were looked at most have the most cases against them. Choose the rows that matter to you.
- A contender passes a row when one way of bringing it about did no harm. That is no proof.
- Celery without a library passes some rows because it has no key that could be left behind or mixed up. The same order
  then runs as often as it is submitted, as the rows that count runs show.
- F1 is about an effect outside of every store. Who records before or after the body, and not with the effect in one
  step, cannot have it exactly once.
- celery-once and celery-singleton are held to two runs of an order at the same time (F4, F6, F7), and not to messages
  that come again later (F8 fork, F18): what they say of themselves goes no further. That an order of celery-singleton
  has no effect at all in F8 fork is F8 again.
- celery-once and celery-singleton can be given a shorter lock time than their defaults (an hour, and no end). F13 and
  F12 killed then end sooner, and F7 is what that costs.
- `Once` is given shorter times than its defaults, a lease of 30 s and 60 s until a message is sent anew: with those F13
  and F12 killed would take longer than their rows allow.
- A defect may have been mended since: the versions are below.

## How each is set up

All: late acknowledgement, `task_reject_on_worker_lost`, one message at a time, results in Redis, and a visibility
timeout of an hour unless the row names one. F13 and F19 use early acknowledgement, Celery's default. Where a message
has to come a second time, and the row is not about the timeout itself, its age is set at the broker to the timeout's.

- segmented `Once`: keyed by the order, `until_executed`, answers kept for an hour, a lease of 5 s, sent anew after 2 s.
- celery-once: `QueueOnce`, `keys` of the order, `graceful`, so that a repeat is no exception; its default lock time.
- celery-singleton: `Singleton`, `unique_on` the order; its defaults.
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
    lines = [
        "| | what must hold | " + " | ".join(contender["title"] for contender in contenders) + " |",
        "| --- | --- |" + " --- |" * len(contenders),
    ]
    for row in rows:
        cells = [_mark(contender, row["id"]) for contender in contenders]
        lines.append(f"| {row['id']} | {row['must_hold']} | " + " | ".join(cells) + " |")
    totals = [_total(contender) for contender in contenders]
    lines.append("| | **✓ / ✗ / -** | " + " | ".join(totals) + " |")
    return "\n".join(lines) + "\n"


def _mark(contender: Contender, row_id: str) -> str:
    result = contender["results"].get(row_id)
    return NOT_RUN if result is None else MARKS[result["outcome"]]


def _total(contender: Contender) -> str:
    outcomes = [result["outcome"] for result in contender["results"].values()]
    return " / ".join(str(outcomes.count(one)) for one in COUNTED) if outcomes else NOT_RUN


def _evidence(rows: Sequence[Mapping[str, str]], contenders: Sequence[Contender]) -> Iterator[str]:
    for row in rows:
        lines = [_counted(contender, row["id"]) for contender in contenders if row["id"] in contender["results"]]
        yield f"### {row['id']}\n\n{row['must_hold'][:1].upper()}{row['must_hold'][1:]}.\n\n" + "\n".join(lines) + "\n"


def _counted(contender: Contender, row_id: str) -> str:
    result = contender["results"][row_id]
    why = f" ({result['why']})" if result["why"] else ""
    return f"- {contender['title']}, {result['outcome']}: {result['evidence']}{why}"


def _conditions(contenders: Sequence[Contender]) -> str:
    lines = []
    for contender in contenders:
        conditions = contender["conditions"]
        if conditions is None:
            lines.append(f"- {contender['title']}: {NOT_RUN}")
            continue
        versions = ", ".join(f"{name} {version}" for name, version in sorted(conditions["versions"].items()))
        lines.append(
            f"- {contender['title']}: {conditions['date']}, commit `{conditions['commit']}`; {versions}; "
            f"{conditions['cores']} cores ({conditions['cpu_model']}), {conditions['system']}, "
            f"load at the end {conditions['load']}"
        )
    lines.append("- Kept as `bench/dedup_peers/results.json`")
    return "\n".join(lines) + "\n"
