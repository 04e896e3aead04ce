"""Ways to make published results look better than they were measured. Each changes a whole results file.

A sabotage is as careful as somebody who wants it to pass: figures that stand side by side are changed together. All are
of the results file alone; what lies beside it stays as it was published.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bench.engine.percentiles import described, histogram_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bench.engine.record import Percentiles, ResultFile, Run

    Sabotage = Callable[[ResultFile], ResultFile]
    Choice = Callable[[Run], bool]
    Values = dict[str, Any]

OURS: Final = "segment-locks K=20 N=64 B=1 20ms"
ONE: Final = "segment-locks K=1 N=64 B=1 20ms"
RIVAL: Final = "one-script K=1 N=64 B=1 20ms"
CONTROL: Final = "no-lock K=1 N=64 B=1 20ms"
WRONGLY: Final = "segments-random K=16 N=64 B=1 20ms"


def _of(cell_id: str) -> Choice:
    return lambda run: run.cell_id == cell_id


def _is_open(run: Run) -> bool:
    return run.cell.loop == "open"


def _each(choice: Choice, change: Callable[[Run], Values]) -> Sabotage:
    """Change every run of a choice."""
    return lambda found: _with(
        found, [one.model_copy(update=change(one)) if choice(one) else one for one in found.runs]
    )


def _first(choice: Choice, change: Callable[[Run], Values]) -> Sabotage:
    """Change the first run of a choice."""

    def sabotage(found: ResultFile) -> ResultFile:
        place = next(number for number, one in enumerate(found.runs) if choice(one))
        runs = list(found.runs)
        runs[place] = runs[place].model_copy(update=change(runs[place]))
        return _with(found, runs)

    return sabotage


def _with(found: ResultFile, runs: Iterable[Run]) -> ResultFile:
    return found.model_copy(update={"runs": tuple(runs)})


def _without(choice: Choice) -> Sabotage:
    """Drop runs, and tell the last line."""

    def sabotage(found: ResultFile) -> ResultFile:
        runs = [one for one in found.runs if not choice(one)]
        return _numbered(found, runs)

    return sabotage


def _numbered(found: ResultFile, runs: list[Run]) -> ResultFile:
    again = [one.model_copy(update={"run": number}) for number, one in enumerate(runs, start=1)]
    end = found.end and found.end.model_copy(update={"runs_planned": len(again), "runs_done": len(again)})
    return _with(found, again).model_copy(update={"end": end})


def _part(run: Run, name: str, **values: Any) -> Values:  # noqa: ANN401  # any field of any part
    return {name: getattr(run, name).model_copy(update=values)}


def _session(**values: Any) -> Sabotage:  # noqa: ANN401  # any field of the first line
    return lambda found: found.model_copy(update={"session": found.session.model_copy(update=values)})


def _plan(change: Callable[[Values], Values]) -> Sabotage:
    return lambda found: _session(plan=found.session.plan | change(found.session.plan))(found)


def _end(**values: Any) -> Sabotage:  # noqa: ANN401  # any field of the last line
    return lambda found: found.model_copy(update={"end": found.end and found.end.model_copy(update=values)})


def _environment(group: str, **values: Any) -> Sabotage:  # noqa: ANN401  # any entry of a group
    def sabotage(found: ResultFile) -> ResultFile:
        told = found.session.environment
        return _session(environment=told | {group: told[group] | values})(found)

    return sabotage


def _scaled(run: Run, factor: float) -> Values:
    """Return a run that sold more a second, in every figure that says so but the histograms."""
    fairness = run.fairness and run.fairness.model_copy(
        update={"by_buyer": [round(one * factor) for one in run.fairness.by_buyer]}
    )
    sold = [round(one * factor) for one in run.series.sold]
    offered = [round(one * factor) for one in run.series.offered]
    total, sent = sum(sold), sum(offered)
    return {
        "orders_per_s": None if run.orders_per_s is None else round(run.orders_per_s * factor, 3),
        "fairness": fairness,
        **_part(run, "series", sold=sold, offered=offered),
        **_part(run, "counts", sold=total, planned=sent, sent=sent, sold_out=sent - total - run.counts.failed),
        **_part(run, "checker", sold=total * run.cell.quantity, stock=total * run.cell.quantity),
    }


def _quicker(told: Percentiles | None, factor: float) -> Percentiles | None:
    """Return the histogram of the same number of times, each shorter."""
    if told is None or not told.n:
        return told
    import numpy as np  # noqa: PLC0415  # only here

    from bench.engine.percentiles import decoded  # noqa: PLC0415  # only here

    values: list[float] = []
    for item in decoded(told.encoded).get_recorded_iterator():
        values += [item.value_iterated_to / 1e6 * factor] * item.count_at_value_iterated_to
    return described(histogram_of(np.array(values)))


def _copied(what: Callable[[Run, Run], Values]) -> Sabotage:
    """Copy the fastest run of our cell over its three slowest."""

    def sabotage(found: ResultFile) -> ResultFile:
        order = sorted((one for one in found.runs if one.cell_id == OURS), key=lambda one: one.orders_per_s or 0.0)
        best, slow = order[-1], {one.run for one in order[:3]}
        return _with(found, [one.model_copy(update=what(one, best)) if one.run in slow else one for one in found.runs])

    return sabotage


def _everything(of: Run, keep: tuple[str, ...] = ("run", "round", "seed", "started_at", "arm", "sweeps")) -> Values:
    return {name: getattr(of, name) for name in type(of).model_fields if name not in keep}


def _swapped(name: str) -> Sabotage:
    """Exchange a field of two runs: the first of ours and the first of one lock."""

    def sabotage(found: ResultFile) -> ResultFile:
        one, other = (next(run for run in found.runs if run.cell_id == cell_id) for cell_id in (OURS, ONE))
        values = {one.run: getattr(other, name), other.run: getattr(one, name)}
        return _with(
            found, [run.model_copy(update={name: values[run.run]}) if run.run in values else run for run in found.runs]
        )

    return sabotage


def _order(change: Callable[[list[Run]], list[Run]]) -> Sabotage:
    return lambda found: _with(found, change(list(found.runs)))


def _shifted(runs: list[Run]) -> list[Run]:
    """Number the rounds the other way round."""
    last = max(one.round for one in runs)
    return [one.model_copy(update={"round": last + 1 - one.round}) for one in runs]


def _swap_rounds(found: ResultFile) -> ResultFile:
    """Exchange the runs of two rounds, numbers and all, so that a slow round comes first."""
    first, second = ([one for one in found.runs if one.round == number] for number in (1, 2))
    moved = [
        two.model_copy(update={"run": one.run, "round": 1, "seed": one.seed, "started_at": one.started_at})
        for one, two in zip(first, second, strict=True)
    ]
    moved += [
        one.model_copy(update={"run": two.run, "round": 2, "seed": two.seed, "started_at": two.started_at})
        for one, two in zip(first, second, strict=True)
    ]
    return _with(found, [*moved, *(one for one in found.runs if one.round > 2)])


def _is_slow(run: Run) -> bool:
    return run.cell_id == OURS and (run.orders_per_s or 0.0) < 961


def _unvoid(run: Run) -> Values:
    return {"void": (), "orders_per_s": round(sum(run.fairness.by_buyer) / run.window_s, 3) if run.fairness else 30.0}


def _clean(run: Run) -> Values:
    return _part(run, "checker", oversold=0, refused_wrongly=0, stranded=0, duplicates=0, lost=0)


def _void(*why: str) -> Callable[[Run], Values]:
    return lambda _: {"void": why, "orders_per_s": None}


SABOTAGES: Final[dict[str, Sabotage]] = {
    # copies
    "the fastest run copied whole over the three slowest": _copied(lambda _, best: _everything(best, ("run", "round"))),
    "its figures copied, with their own seeds and times": _copied(lambda _, best: _everything(best)),
    "only its rate copied": _copied(lambda _, best: {"orders_per_s": best.orders_per_s}),
    "its rate, window and buyers copied": _copied(
        lambda _, best: {name: getattr(best, name) for name in ("orders_per_s", "window_s", "fairness")}
    ),
    "its rate, window, buyers, series and counts copied": _copied(
        lambda _, best: {
            name: getattr(best, name)
            for name in ("orders_per_s", "window_s", "fairness", "series", "counts", "warm_up_s", "checker")
        }
    ),
    "its times copied": _copied(lambda _, best: {"times": best.times}),
    "its history copied": _copied(lambda _, best: {"history": best.history, "history_sha256": best.history_sha256}),
    # runs that are not there, or more of them
    "a rival's cell dropped": _without(_of(RIVAL)),
    "a rival's strategy dropped": _without(lambda run: run.cell.strategy == "lock-free"),
    "three slow runs dropped": _without(_is_slow),
    "the last round dropped": _without(lambda run: run.round == 10),
    "a slow round dropped and the others renumbered": lambda found: _numbered(
        found,
        [one.model_copy(update={"round": one.round - (one.round > 3)}) for one in found.runs if one.round != 3],
    ),
    "void runs dropped": _without(lambda run: bool(run.void)),
    "the case in which segments lose dropped": _without(lambda run: run.cell.stock == 1),
    "arm B dropped": _without(lambda run: run.arm == "B"),
    "one run dropped without a word": lambda found: _with(found, found.runs[1:]),
    "a run added": lambda found: _numbered(found, [*found.runs, found.runs[-1].model_copy(update={"seed": 5})]),
    "the control dropped": _without(_of(CONTROL)),
    # rates
    "a rate one per cent higher": _first(_of(OURS), lambda run: {"orders_per_s": 1.01 * (run.orders_per_s or 0)}),
    "all rates of a cell a tenth higher": _each(_of(OURS), lambda run: {"orders_per_s": 1.1 * (run.orders_per_s or 0)}),
    "a rival's rates a tenth lower": _each(_of(RIVAL), lambda run: {"orders_per_s": 0.9 * (run.orders_per_s or 0)}),
    "rates, buyers, series and counts scaled together": _each(_of(OURS), lambda run: _scaled(run, 1.1)),
    "the same by two per cent": _each(_of(OURS), lambda run: _scaled(run, 1.02)),
    "a rival scaled down in all of it": _each(_of(RIVAL), lambda run: _scaled(run, 0.9)),
    "a window shorter than measured": _each(
        _of(OURS), lambda run: {"window_s": run.window_s * 0.9, "orders_per_s": (run.orders_per_s or 0) / 0.9}
    ),
    "a window shorter, in the series too": _each(
        _of(OURS),
        lambda run: {
            "window_s": round(run.window_s * 0.9, 3),
            "orders_per_s": round((run.orders_per_s or 0) / 0.9, 3),
            **_part(run, "series", window=(run.series.window[0], round(run.series.window[0] + run.window_s * 0.9, 3))),
        },
    ),
    "a longer warm-up": _each(_of(OURS), lambda run: {"warm_up_s": run.warm_up_s + 0.2}),
    "the buyers' orders made even": _first(
        lambda run: run.fairness is not None and run.fairness.jain < 0.5,
        lambda run: _part(run, "fairness", jain=1.0, by_buyer=[1] * run.cell.buyers),
    ),
    "refusals a second left out": _each(_of(OURS), lambda run: _part(run, "counts", sold_out=0)),
    # verdicts of the checker
    "a control shown as correct": _each(_of(CONTROL), lambda run: {"is_control": False, **_clean(run), "void": ()}),
    "a control's oversell taken out": _each(_of(CONTROL), _clean),
    "void marks removed": _each(lambda run: bool(run.void), lambda _: {"void": ()}),
    "void marks removed, with a rate": _each(lambda run: bool(run.void) and not run.is_control, _unvoid),
    "void marks and findings removed": _each(_of(WRONGLY), lambda run: {**_unvoid(run), **_clean(run)}),
    "one wrong refusal taken out": _first(_of(WRONGLY), lambda run: _part(run, "checker", refused_wrongly=0)),
    "slow runs marked void": _each(_is_slow, _void("sold out too soon: 0.4 s were measured, and it takes 0.833 s")),
    "slow runs marked void for an oversell": _each(_is_slow, _void("oversold by 3 units")),
    "slow runs marked as lost": _each(_is_slow, _void("the run ended without a record: killed")),
    "an open run marked void as late": _first(
        lambda run: _is_open(run) and not run.void, _void("the generator was late: p99 of the lateness is 9 ms")
    ),
    "a late open run kept": _each(lambda run: _is_open(run) and bool(run.void), _unvoid),
    "late runs with another lateness": _each(
        lambda run: _is_open(run) and bool(run.void),
        lambda run: {**_unvoid(run), **_part(run, "times", lateness=_quicker(run.times.lateness, 0.1))},
    ),
    "units said to be sold that were not": _each(
        _of(OURS), lambda run: _part(run, "checker", sold=run.checker.sold + 9)
    ),
    "an unclean audit": _first(_of(OURS), lambda run: _part(run, "checker", audit="1 mismatch")),
    # guarantees and settings
    "a rival's guarantees taken away": _each(
        _of(RIVAL), lambda run: {"guarantees": run.guarantees | {"never_oversells": False}}
    ),
    "a guarantee given to a strategy": _each(
        _of("watch-multi K=1 N=64 B=1 20ms"), lambda run: {"guarantees": run.guarantees | {"fencing": True}}
    ),
    "a durability given to a strategy": _each(
        _of(OURS), lambda run: {"guarantees": run.guarantees | {"durable": "commit"}}
    ),
    "another server in every run": _each(lambda _: True, lambda run: {"server": run.server | {"version": "9.9.9"}}),
    "append-only said of every run": _each(lambda _: True, lambda run: {"server": run.server | {"appendonly": "yes"}}),
    "marks of a full generator removed": _each(lambda run: "generator" in run.saturated, lambda _: {"saturated": ()}),
    "a rival marked as saturated": _each(_of(ONE), lambda _: {"saturated": ("redis",)}),
    "more lanes for one lock": _each(_of(ONE), lambda _: {"lanes": 2}),
    "fewer lanes in one run": _first(_of(OURS), lambda _: {"lanes": 19}),
    "notes of shed orders removed": _each(lambda run: bool(run.notes), lambda _: {"notes": ()}),
    "shed orders left out of the failures": _each(
        lambda run: run.counts.shed > 0, lambda run: _part(run, "counts", failed=run.counts.failed - run.counts.shed)
    ),
    "shed orders left out altogether": _each(
        lambda run: run.counts.shed > 0,
        lambda run: {
            "notes": (),
            **_part(
                run,
                "counts",
                shed=0,
                failed=run.counts.failed - run.counts.shed,
                planned=run.counts.planned - run.counts.shed,
            ),
            **_part(
                run,
                "series",
                shed=[],
                offered=[one - (run.series.shed or [0] * 999)[place] for place, one in enumerate(run.series.offered)],
            ),
        },
    ),
    # times
    "a p99 halved": _first(
        _is_open,
        lambda run: _part(
            run, "times", response=run.times.response and run.times.response.model_copy(update={"p50": 1.0})
        ),
    ),
    "a mean halved": _each(
        _of(OURS), lambda run: _part(run, "times", service=run.times.service.model_copy(update={"mean": 1.0}))
    ),
    "response times halved, histogram and all": _each(
        _is_open, lambda run: _part(run, "times", response=_quicker(run.times.response, 0.5))
    ),
    "service times halved, histogram and all": _each(
        _of(OURS), lambda run: _part(run, "times", service=_quicker(run.times.service, 0.5))
    ),
    "holds a tenth shorter, histogram and all": _each(
        _of(OURS), lambda run: _part(run, "times", hold=_quicker(run.times.hold, 0.85))
    ),
    "waits halved, histogram and all": _each(
        _of(OURS), lambda run: _part(run, "times", wait=_quicker(run.times.wait, 0.5))
    ),
    "the longest wait halved": _each(
        _of(OURS),
        lambda run: _part(run, "fairness", longest_wait_ms=run.fairness.longest_wait_ms / 2 if run.fairness else 0.0),
    ),
    # the session line, the end, the order
    "hypotheses rewritten in the session line": _plan(
        lambda plan: {
            "hypotheses": [one | {"expect": [{"of": {"segments": 20}, "at_least": 10}]} for one in plan["hypotheses"]]
        }
    ),
    "a hypothesis left out": _plan(lambda plan: {"hypotheses": plan["hypotheses"][1:]}),
    "the stopping rule rewritten": _plan(lambda _: {"stop": "When it looks right."}),
    "exclusions added": _plan(lambda plan: {"exclusions": [*plan["exclusions"], "A slow run."]}),
    "fewer rounds planned": _plan(lambda _: {"rounds": 9}),
    "another sum of the plan": _session(plan_sha256="0" * 64),
    "another commit of the plan": _session(plan_commit="0" * 40),
    "a later commit named as that of the plan": _session(plan_commit="92e97c57" + "0" * 32),
    "the commit before it named as that of the plan": _session(plan_commit="20eb9da62f811900c5e62ecd3abacc78cb9b7514"),
    "a session that began before its plan": _session(started_at="2026-11-20T20:40:47+00:00"),
    "a quick session shown as a whole one": _session(is_quick=True),
    "parts left out, said in a sentence": _session(left_out=("the rest",)),
    "another commit of the code": _environment("code", commit="e" * 40),
    "a better processor": _environment("machine", cpu_model="EPYC 9965", cores=64),
    "a quiet machine": _environment("machine", steal_percent=0.0),
    "a slower disk": _environment("disk", fdatasync_us={"n": 50, "mean": 9.0, "median": 9.0, "max": 9.0}),
    "an end that planned fewer runs": _end(runs_planned=840, runs_done=840),
    "an end before the last run": _end(finished_at="2026-11-22T21:00:00+00:00"),
    "an end that was stopped": _end(stopped_by="interrupted"),
    "other seeds": _each(lambda _: True, lambda run: {"seed": run.seed + 1}),
    "one other seed": _first(_is_open, lambda run: {"seed": run.seed + 1}),
    "rounds the other way round": _order(_shifted),
    "two rounds exchanged": _swap_rounds,
    "runs sorted by cell": _order(lambda runs: sorted(runs, key=lambda run: run.cell_id)),
    "two runs in the other order": _order(lambda runs: [runs[1], runs[0], *runs[2:]]),
    "arms exchanged": _each(
        lambda run: len([1 for sweep in run.sweeps if sweep == "a-a"]) > 0,
        lambda run: {"arm": "B" if run.arm == "A" else "A"},
    ),
    "two cells exchanged": _swapped("cell"),
    "two names of cells exchanged": _swapped("cell_id"),
    "two rates exchanged": _swapped("orders_per_s"),
    "a run at another time": _first(_of(OURS), lambda _: {"started_at": "2026-11-22T21:00:00.000+00:00"}),
    "a cell with a shorter hold": _each(_of(OURS), lambda run: {"cell": run.cell.model_copy(update={"hold_ms": 10.0})}),
    "a cell in another sweep": _each(_of(RIVAL), lambda _: {"sweeps": ("k",)}),
    "another load": _each(lambda run: run.offered_percent == 95, lambda _: {"offered_percent": 110.0}),
    # what an order costs, and what nothing else of the record says
    "fewer lock requests": _each(_of(OURS), lambda run: _part(run, "work", attempts=0.0)),
    "fewer commands": _each(_of(OURS), lambda run: _part(run, "work", commands=run.work.commands / 2)),
    "less CPU of the server": _each(_of(OURS), lambda run: _part(run, "work", server_us=run.work.server_us / 2)),
    "a smaller share of the recorder": _each(lambda _: True, lambda _: {"recorder_share": 0.0}),
    "a quicker median by bins": _each(
        lambda run: run.cell.arrivals == "spike",
        lambda run: _part(run, "series", p50_ms=[1.0] * len(run.series.p50_ms)),
    ),
}
