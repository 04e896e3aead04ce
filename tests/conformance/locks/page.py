"""Renders the comparison as a page: a pure function of the saved results, so that a test can compare them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.conformance.common import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Contender = dict[str, Any]

MARKS: Final = {"passed": "✓", "failed": "✗", "not applicable": "-"}
FIRST_OF_OURS: Final = "Lock"

INTRODUCTION: Final = """\
# Locks under faults, compared

Every lock library fails somewhere. This page shows where, for the locks of `segmented` and of other Python libraries.
The same conformance suite (`tests/support/contract/locks/`) ran on each. A row is a fault that has been seen in some
lock: a lease that expires, a lost reply, a waiter that dies. The suite causes it on a real server, through a
connection that it can cut, hold or delay. A command writes this page from its own measurements; [how to run
it](../reference/tests.md#compare-locks).

✓ passed, ✗ failed, - does not apply: the lock does not offer the feature that the row tests. Threads and asyncio
share a column if their results agree.
"""

RESERVATIONS: Final = """\
## How far to trust it

- The rows are ours. Most were written after a fault had been seen in one of these libraries, so the libraries that we
  examined most have the most rows against them. Choose the rows that matter to you.
- A lock passes a row if one way of causing the fault did it no harm. That is not a proof.
- A bound in a row ("within 5 s") is far above what a lock needs. It does not separate fast locks from slow ones.
- Each library has its own defaults. redis-py's client comes from its constructor, which retries; pottery's from
  `from_url`, as in its manual. pottery and `QuorumLock` use three servers, and a network fault affects all three,
  unless the row says otherwise.
- `SqlRowLock` and `ZooKeeperLock` run their rows in `make test-full` only: their servers are system packages.
- A fault may have been fixed since. The measured versions are below.
"""


def render(comparison: dict[str, Any]) -> str:
    """Return the page."""
    contenders: list[Contender] = comparison["contenders"]
    groups = _grouped(contenders)
    first = [group for group in groups if not group[0]["is_ours"] or group[0]["title"] == FIRST_OF_OURS]
    others = [group for group in groups if group[0]["is_ours"] and group[0]["title"] != FIRST_OF_OURS]
    parts = [INTRODUCTION, "## Results\n", _table(comparison["rows"], first)]
    if others:
        parts += ["## The other locks of segmented\n", _ours(others)]
    parts += ["## What failed\n", *_failures(groups), "## What does not apply\n", _reasons(groups)]
    parts += [RESERVATIONS, "## Conditions\n", _conditions(comparison["conditions"], contenders)]
    return "\n".join(parts)


def _grouped(contenders: Sequence[Contender]) -> list[list[Contender]]:
    groups: dict[tuple[bool, str], list[Contender]] = {}
    for contender in contenders:
        groups.setdefault((contender["is_ours"], contender["title"]), []).append(contender)
    return list(groups.values())


def _name(group: Sequence[Contender]) -> str:
    return f"segmented `{group[0]['title']}`" if group[0]["is_ours"] else str(group[0]["title"])


def _table(rows: Sequence[dict[str, str]], groups: Sequence[list[Contender]]) -> str:
    totals = [_total(group) for group in groups]
    heads = [_name(group) for group in groups]
    return table(
        rows, heads, lambda place, row_id: _cell(groups[place], row_id), "**passed, of those that apply**", *totals
    )


def _ours(groups: Sequence[list[Contender]]) -> str:
    """Return a table of the locks alone: the next sections name the rows that failed or do not apply."""
    head = "| lock | passed, of the rows that apply |\n| --- | --- |\n"
    return head + "".join(f"| `{group[0]['title']}` | {_total(group)} |\n" for group in groups)


def _cell(group: Sequence[Contender], row_id: str) -> str:
    marks = {contender["colour"]: MARKS[contender["results"][row_id]["outcome"]] for contender in group}
    if len(set(marks.values())) == 1:
        return next(iter(marks.values()))
    return ", ".join(f"{mark} {colour}" for colour, mark in marks.items())


def _total(group: Sequence[Contender]) -> str:
    outcomes = [result["outcome"] for contender in group for result in contender["results"].values()]
    passed = outcomes.count("passed")
    return f"{passed} of {passed + outcomes.count('failed')}"


def _failures(groups: Sequence[list[Contender]]) -> Iterator[str]:
    for group in groups:
        lines = list(_failures_of(group))
        if lines:
            yield f"### {_name(group)}\n\n" + "\n".join(lines) + "\n"
    spotless = [_name(group) for group in groups if not list(_failures_of(group))]
    if spotless:
        yield f"No row that applies failed: {', '.join(spotless)}.\n"


def _failures_of(group: Sequence[Contender]) -> Iterator[str]:
    for row_id in group[0]["results"]:
        why: dict[str, list[str]] = {}
        for contender in group:
            result = contender["results"][row_id]
            if result["outcome"] == "failed":
                why.setdefault(result["why"], []).append(contender["colour"])
        for sentence, colours in why.items():
            where = "" if len(colours) == len(group) else f" ({', '.join(colours)})"
            yield f"- {row_id}{where}: {_grouped_by_end(sentence)}."


def _grouped_by_end(sentence: str) -> str:
    """Write "0 fails; 1 fails" as "0, 1 fails"."""
    starts: dict[str, list[str]] = {}
    for part in sentence.split("; "):
        start, _, rest = part.partition(" ")
        starts.setdefault(rest, []).append(start)
    return "; ".join(f"{', '.join(first)} {rest}" for rest, first in starts.items())


def _reasons(groups: Sequence[list[Contender]]) -> str:
    who: dict[tuple[str, str], list[str]] = {}
    for group in groups:
        for contender in group:
            for row_id, result in contender["results"].items():
                if result["outcome"] == "not applicable":
                    colour = "" if _is_common(group, row_id) else f" ({contender['colour']})"
                    names = who.setdefault((result["why"], row_id), [])
                    if _short(group) + colour not in names:
                        names.append(_short(group) + colour)
    alike: dict[tuple[str, str], list[str]] = {}
    for (why, row_id), names in who.items():
        alike.setdefault((why, _these(names, [_short(group) for group in groups])), []).append(row_id)
    lines = [f"- {', '.join(row_ids)}: {why} ({these})." for (why, these), row_ids in alike.items()]
    return "\n".join(sorted(lines)) + "\n"


def _these(names: Sequence[str], everybody: Sequence[str]) -> str:
    """Return the names as text, or as "all but" the others if these are fewer."""
    plain = [name.removesuffix(" (threads)") for name in names]
    if plain != list(names) and set(plain) == set(everybody):
        return "all, with threads"
    others = [name for name in everybody if name not in names]
    if len(others) * 2 > len(everybody) or any(name not in everybody for name in names):
        return ", ".join(names)
    return f"all but {', '.join(others)}" if others else "all"


def _short(group: Sequence[Contender]) -> str:
    return f"`{group[0]['title']}`" if group[0]["is_ours"] else str(group[0]["title"])


def _is_common(group: Sequence[Contender], row_id: str) -> bool:
    return len({contender["results"][row_id]["why"] for contender in group}) == 1


def _conditions(conditions: dict[str, Any], contenders: Sequence[Contender]) -> str:
    versions: dict[str, str] = {}
    for contender in contenders:
        versions |= contender["versions"]
    versions.pop("python", None)
    lines = [
        f"- Date: {conditions['date']}; commit `{conditions['commit']}`",
        f"- Server: {conditions['server']}, on a socket of the same machine",
        f"- Python {conditions['python']}; " + ", ".join(f"{name} {versions[name]}" for name in sorted(versions)),
        f"- {conditions['cores']} cores ({conditions['cpu_model']}), {conditions['system']}",
        f"- Load before the run: {conditions['load_before']}",
        "- Each row ran in its own process; results in `tests/conformance/locks/results.json`",
    ]
    return "\n".join(lines) + "\n"
