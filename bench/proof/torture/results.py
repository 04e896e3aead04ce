"""The results of `torture locks`, and whether every guarantee held."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from bench.proof.torture.checker import MUST_BE_ZERO, Verdict
from bench.results import Judged, show_end, show_rows

if TYPE_CHECKING:
    from rich.console import Console

    from bench.proof.torture.admin import Leftovers
    from bench.proof.torture.options import Kind

LABELS: Final = {
    "accesses_overlapping": "accepted accesses that overlap",
    "tokens_backwards": "tokens that went back",
    "tokens_shared": "tokens of two holders",
    "late_accepted": "late writes accepted after a newer token",
    "refused_wrongly": "refused although no newer holder had come",
    "leases_overlapping": "leases that overlap while trusted",
    "permits_exceeded": "checks that saw more permits than there are",
    "cancellations_lost": "tasks that were cancelled and went on",
    "tasks_left": "tasks left after their store was closed",
    "connections_open": "connections open after their store was closed",
    "immortal_keys": "keys left without a time to live",
    "held_names": "names held after the end",
    "channels": "subscriptions left",
    "connections": "connections left",
    "processes": "processes left",
    "stuck": "processes that did not stop when asked",
    "crashes": "processes that ended by themselves",
}


@dataclass(frozen=True, slots=True)
class TortureResults(Judged):
    """The results of a run."""

    kind: Kind
    verdict: Verdict
    leftovers: Leftovers
    processes_started: int
    stuck: int
    crashes: tuple[str, ...]
    conditions: dict[str, Any]

    @property
    def counts(self) -> dict[str, int]:
        """Return the counts that must be 0."""
        found = {name: int(getattr(self.verdict, name)) for name in MUST_BE_ZERO}
        return {**found, **asdict(self.leftovers), "stuck": self.stuck, "crashes": len(self.crashes)}

    @property
    def gap_bound(self) -> float:
        """Return the seconds within which there must be an entry on every name: longer if a server was away."""
        return self.kind.ttl + self.kind.patience + round(self.verdict.away_max, 1)

    @property
    def broken(self) -> list[str]:
        """Return one sentence per guarantee that did not hold."""
        verdict = self.verdict
        found = [f"{LABELS[name]}: {count:,}, must be 0" for name, count in self.counts.items() if count]
        found += list(self.crashes)
        if not verdict.acquisitions:
            found.append("no holder got in")
        if verdict.gap_max > self.gap_bound:
            found.append(f"no holder got in for {verdict.gap_max:.1f} s; the maximum is {self.gap_bound:g} s")
        if self.kind.is_fenced and verdict.pauses and not verdict.late_refused:
            found.append("no late write was refused: nothing is known about the fence")
        return found

    def as_json(self) -> dict[str, Any]:
        """Return the content of the results file."""
        return {
            "benchmark": "torture-locks",
            "kind": self.kind.name,
            "is_kept": self.is_kept,
            "broken": self.broken,
            "must_be_zero": self.counts,
            "acquisitions": self.verdict.acquisitions,
            "kills": self.verdict.kills,
            "pauses": self.verdict.pauses,
            "cuts": self.verdict.cuts,
            "cancellations": dict(self.verdict.cancellations),
            "restarts": self.verdict.restarts,
            "away_max_s": round(self.verdict.away_max, 3),
            "processes_started": self.processes_started,
            "late_refused": self.verdict.late_refused,
            "late_unfenced": self.verdict.late_unfenced,
            "permits_seen_max": self.verdict.permits_seen_max,
            "waited_max_s": round(self.verdict.waited_max, 3),
            "gap_max_s": round(self.verdict.gap_max, 3),
            "gap_bound_s": self.gap_bound,
            "missed": dict(self.verdict.missed),
            "conditions": self.conditions,
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return the table: first the events, then the counts that must be 0."""
        verdict = self.verdict
        late = ("late writes refused by the fence", f"{verdict.late_refused:,}")
        if not self.kind.is_fenced:
            late = ("late writes that no fence could refuse", f"{verdict.late_unfenced:,}")
        missed = ", ".join(f"{reason} {count:,}" for reason, count in sorted(verdict.missed.items()))
        cancelled = ", ".join(f"{moment} {count:,}" for moment, count in sorted(verdict.cancellations.items()))
        away = verdict.away_max
        found = [
            ("acquisitions", f"{verdict.acquisitions:,}"),
            ("processes started", f"{self.processes_started:,}"),
            ("killed, paused, connections cut", f"{verdict.kills:,}, {verdict.pauses:,}, {verdict.cuts:,}"),
            ("tasks cancelled", cancelled or "0"),
            ("servers restarted", f"{verdict.restarts:,}" + (f" (away up to {away:.2f} s)" if away else "")),
            late,
            ("did not get in", missed or "0"),
            ("longest wait", f"{verdict.waited_max:.2f} s"),
            ("longest time without an entry", f"{verdict.gap_max:.2f} s (at most {self.gap_bound:g} s)"),
        ]
        if self.kind.permits > 1:
            found.append(("most permits seen", f"{verdict.permits_seen_max} of {self.kind.permits}"))
        return [*found, *((LABELS[name], f"{count:,}") for name, count in self.counts.items())]

    def show(self, console: Console) -> None:
        """Print a table on a terminal, or lines into a pipe."""
        show_rows(console, ("", self.kind.name), self.rows())
        show_end(console, self.broken, self.conditions)
