"""A scheduler for `celery beat` that may run on every machine: one leads, and each entry is sent once a slot.

1. A beat becomes the leader by a lease with a fencing token. A keeper renews the lease in the background, however
   long a publication takes. The others wait for its end, so a leader that stops is replaced at once, and a killed one
   after its lease.
2. The leader claims a slot before it publishes: one script compares its token with that of the newest leader, the state
   with the one that the leader has read, and the slot with the server's clock. A leader that slept through its lease is
   refused there, and no machine's clock decides anything.
3. It publishes the message, with an id that is the same in every attempt of the slot.
4. It notes that the slot was sent. A leader that dies between 2 and 4 leaves a claimed slot, which its successor sends
   again under the same id. With `beat_delivery = "at_most_once"`, step 2 notes it already.
"""

from __future__ import annotations

import copy
import logging
import signal
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid5

from celery import Celery, beat

from segmented.celery.beat.schedule import (
    BeatSettings,
    EntryState,
    following,
    is_known,
    latest,
    open_store,
    print_of,
    read_entry,
    read_state,
    settings_of,
)
from segmented.clock import Clock, checked_clock
from segmented.errors import AcquireTimeout, InvalidInput, SegmentedError
from segmented.errors.base import FOREIGN
from segmented.locks import Lock
from segmented.locks.durations import OwnName
from segmented.models.beat import BeatRead, BeatSuperseded, EntryDiffers, EntryEarly
from segmented.process import EXIT_INVALID_INPUT, tell
from segmented.protocol import LeadBeat, MoveEntry, ReadBeat

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from segmented.locks import Lease
    from segmented.plans.drivers import Store

IDS: Final = UUID("5f1d5e5c-6f0f-4e7e-9a0e-3a2b7d0c9c11")
"""Name space of the ids of messages."""
LOOK_SECONDS: Final = 5.0
"""Maximum time between two looks at the schedule: a change at runtime takes effect within it."""
PAUSE_SECONDS: Final = 1.0
RENEW_MAX: Final = 30 * 24 * 3_600.0
GONE_MS: Final = 24 * 3_600 * 1_000
"""How long the state of an entry is kept that the leader's code no longer has: two versions may take turns to lead."""
TIDY_SECONDS: Final = 3_600.0
AHEAD_MS: Final = 60_000
"""A last slot that is further ahead of the server's clock is logged: the clock was set back."""
SLOT_HEADER: Final = "beat_slot"
"""Header of each message: the moment of its slot, in ISO format."""
ENDING: Final = (signal.SIGTERM, signal.SIGINT)
log = logging.getLogger(__name__)


@dataclass(slots=True)
class Job:
    """An entry with its state, as the leader knows it."""

    entry: Any
    """Celery's ScheduleEntry."""
    text: str
    """The state as stored; "" for a new entry."""
    state: EntryState | None = None
    """None if it cannot be read: then the entry is not sent."""
    due_ms: int = 0


class Scheduler(beat.Scheduler):
    """Scheduler of many beats: `celery -A shop beat -S segmented.celery.beat:Scheduler`."""

    max_interval: float = LOOK_SECONDS  # type: ignore[assignment]  # Celery's stub says int
    data: dict[str, Any]

    def __init__(self, app: Celery, *args: Any, clock: Clock | None = None, **passed_on: Any) -> None:  # noqa: ANN401  # of Celery's scheduler
        """Create the scheduler; without `lazy`, read the settings and the entries of the code."""
        self._clock = checked_clock(clock)
        self._said: BeatSettings | None = None
        self._store: Store | None = None
        self._lease: Lease | None = None
        self._token = 0
        self._version = ""
        self._jobs: dict[str, Job] = {}
        self._code: dict[str, Any] = {}
        self._read_at = self._tidy_at = self._stand_back_until = 0.0
        self._read_ms = 0
        self._is_in_tick = False
        self._told: set[str] = set()
        super().__init__(app, *args, **passed_on)

    @property
    def info(self) -> str:
        """Return a line of the banner."""
        return f"    . schedule -> {settings_of(self.app).namespace!r} at {settings_of(self.app).shown}"

    def setup_schedule(self) -> None:
        """Read the settings and the entries of the code. Ends the process with a sentence for those it cannot use."""
        try:
            self._said = settings_of(self.app)
            self._store = open_store(self.app)
            self.update_from_dict(self._entries_of_code())
            self.install_default_entries(self.data)
            self._code = dict(self.data)
        except InvalidInput as error:
            tell(str(error))
            raise SystemExit(EXIT_INVALID_INPUT) from error

    def tick(self, *args: Any, **_: Any) -> float:  # noqa: ANN401, ARG002  # of Celery's scheduler
        """Send what is due, if this beat leads; otherwise wait to lead. Returns the seconds until the next call."""
        self._is_in_tick = True
        try:
            return self._tick()
        except SegmentedError as error:
            log.warning("beat: %s", error)
            self._version = ""  # what was written is not known: read everything again
            return min(PAUSE_SECONDS, self.max_interval)
        finally:
            self._is_in_tick = False

    def close(self) -> None:
        """Hand over at once. A signal in the middle of a tick ends the tick first, and then this is called again."""
        if self._is_in_tick:
            return
        self._forget_lead()
        super().close()
        if self._store is not None and self.app.conf.get("beat_store") is None:
            self._store.close()

    def _entries_of_code(self) -> dict[str, Any]:
        found: Mapping[str, Any] = self.app.conf.beat_schedule or {}
        for name, said in found.items():
            try:
                entry: Any = self.Entry(**{**said, "name": name, "app": self.app})
                _ = entry.schedule.is_due, entry.task + ""
            except FOREIGN as error:
                raise InvalidInput(f"entry {name!r} of beat_schedule cannot be read: {error}") from error
        return dict(found)

    def _tick(self) -> float:
        pause = self._stand_back_until - self._clock.now()
        if pause > 0:
            return min(pause, self.max_interval)
        if not self._leads():
            return 0.0
        if not self._has_looked():
            return self._superseded()
        for job in sorted(self._jobs.values(), key=lambda job: job.due_ms):
            if job.due_ms > self._now_ms():
                break
            if not self._is_done(job):
                return 0.0 if self._lease is None else self._superseded()
        next_ms = min((job.due_ms for job in self._jobs.values()), default=self._now_ms() + 3_600_000)
        return min(self.max_interval, max(0.0, (next_ms - self._now_ms()) / 1_000))

    def _superseded(self) -> float:
        log.warning("beat: another beat leads the schedule now; waiting for the lead")
        self._forget_lead()
        return 0.0

    def _leads(self) -> bool:
        """Return whether this beat leads, after a wait for the lead of up to `max_interval` seconds."""
        if self._lease is not None and self._lease.is_trusted:
            return True
        if self._lease is not None:
            log.warning("beat: the lead was lost; waiting for it")
            self._forget_lead()
        said, store = self._ready()
        name = OwnName(f"beat of {said.namespace}")
        lock = Lock(store, name, ttl=said.ttl, renew=True, renew_max=RENEW_MAX)
        try:
            self._lease = lock.acquire(timeout=self.max_interval)
        except AcquireTimeout:
            self._tell_missing(store.execute(ReadBeat(said.namespace)).runs)
            return False
        self._token = self._lease.fencing_token
        log.info("beat: leading the schedule %r with token %s", said.namespace, self._token)
        return True

    def _tell_missing(self, runs: Mapping[str, str]) -> None:
        """Name the entries of the code that the leader does not have, as a beat of other code, or of another app."""
        for name in self._code:
            with suppress(InvalidInput):
                if name not in runs or read_state(runs[name]).gone is not None:
                    self._tell(
                        f"entry {name!r} is not sent: the beat that leads has other code. Stop it if it is old; if it "
                        "is another app's, give each app a beat_namespace of its own"
                    )

    def _has_looked(self) -> bool:
        """Read the server's time, and the schedule if it has changed. Returns False if another beat leads."""
        said, store = self._ready()
        asked_at = self._clock.now()
        answer = store.execute(LeadBeat(said.namespace, self._token, self._version))
        if isinstance(answer, BeatSuperseded):
            return False
        self._read_at, self._read_ms = asked_at, answer.now_ms
        if answer.found is not None:
            self._take(answer.found)
            self._version = answer.version
        if self._clock.now() >= self._tidy_at:
            self._tidy(answer.found)
        return True

    def _take(self, found: BeatRead) -> None:
        """Take over the entries and their states."""
        entries = dict(self._code)
        for name, text in found.entries.items():
            try:
                entry = read_entry(self.app, name, text)
            except InvalidInput as error:
                self._tell(f"entry {name!r} was skipped: {error}; remove it with Schedule(app).remove({name!r})")
                continue
            if name in self._code:
                self._tell(
                    f"entry {name!r} was added at runtime, and beat_schedule of the code has it, too: that one is used"
                )
                continue
            entries[name] = entry
        self.data = entries
        self._jobs = {name: self._job(entry, found.runs.get(name, "")) for name, entry in entries.items()}

    def _job(self, entry: Any, text: str) -> Job:  # noqa: ANN401  # Celery's ScheduleEntry
        job = Job(entry, text)
        self._read_job(job, text)
        return job

    def _read_job(self, job: Job, text: str) -> None:
        job.text = text
        try:
            state = read_state(text) if text else None
        except InvalidInput as error:
            name = job.entry.name
            self._tell(f"entry {name!r} is not sent: {error}; forget it with Schedule(app).reset({name!r})")
            job.state, job.due_ms = None, self._now_ms() + 3_600_000
            return
        now_ms, seen = self._now_ms(), print_of(job.entry.schedule)
        if state is not None and state.slot > now_ms + AHEAD_MS:
            name, last = job.entry.name, datetime.fromtimestamp(state.slot / 1_000, UTC)
            self._tell(
                f"entry {name!r} is not sent before {last:%Y-%m-%d %H:%M} UTC, its last slot: the server's clock was "
                f"ahead and went back; forget it with Schedule(app).reset({name!r})"
            )
        if state is None:
            state = EntryState(now_ms, seen)
        elif state.gone is not None or state.of != seen:
            is_new = state.of != seen or now_ms - (state.gone or now_ms) > GONE_MS
            slot = max(state.slot, now_ms) if is_new and state.is_sent else state.slot
            state = replace(state, slot=slot, of=seen, gone=None)
        self._set(job, state)

    def _set(self, job: Job, state: EntryState) -> None:
        job.state, entry = state, job.entry
        entry.last_run_at = datetime.fromtimestamp(state.slot / 1_000, UTC).astimezone(entry.schedule.tz)
        entry.total_run_count = state.count
        is_noted = job.text == state.written()  # otherwise its first sight or its change is noted first
        job.due_ms = self._next_ms(job, state) if is_noted and state.is_sent else self._now_ms()

    def _next_ms(self, job: Job, state: EntryState) -> int:
        found = job.entry.schedule
        if is_known(found):
            return following(found, state.slot)
        is_due, seconds = job.entry.is_due()
        return self._now_ms() + (0 if is_due else max(1, round(float(seconds) * 1_000)))

    def _owed(self, job: Job, state: EntryState) -> int | None:
        """Return the slot to send now: the latest one that was missed, or None."""
        found, now_ms = job.entry.schedule, self._now_ms()
        slot_ms = latest(found, state.slot, now_ms) if is_known(found) else None
        if not is_known(found) and job.entry.is_due()[0]:
            slot_ms = now_ms
        if slot_ms is None:
            return None if state.is_sent else state.slot
        return slot_ms

    def _is_done(self, job: Job) -> bool:
        """Send what is due of an entry. Returns False if this beat must not go on."""
        state = job.state
        if state is None:
            return True
        if job.text != state.written():
            return self._is_moved(job, replace(state, by=self._token), 0)
        slot_ms = self._owed(job, state)
        if slot_ms is None:
            job.due_ms = self._next_ms(job, state)
            return True
        said, _ = self._ready()
        late_ms = self._now_ms() - slot_ms
        is_skipped = said.catch_up_ms is not None and late_ms > said.catch_up_ms and state.is_sent
        is_sent = is_skipped or said.is_at_most_once
        count = state.count + (not is_skipped and slot_ms != state.slot)
        claim = replace(state, slot=slot_ms, by=self._token, is_sent=is_sent, count=count)
        if not self._is_moved(job, claim, slot_ms):
            return False
        if job.text != claim.written():
            return True
        if is_skipped:
            log.warning("beat: %s is %.0f s late for its slot and is skipped", job.entry.name, late_ms / 1_000)
            return True
        with _ended_later():
            if not self._is_published(job, slot_ms):
                return False
            return is_sent or self._is_moved(job, replace(claim, is_sent=True), 0)

    def _is_moved(self, job: Job, after: EntryState, due_ms: int) -> bool:
        """Write a state. Returns False if another beat leads; the job then has the state that is stored."""
        said, store = self._ready()
        text = after.written()
        answer = store.execute(MoveEntry(said.namespace, self._token, job.entry.name, job.text, text, due_ms))
        match answer:
            case BeatSuperseded():
                return False
            case EntryDiffers(found):
                self._read_job(job, found)
            case EntryEarly(left_ms):
                job.due_ms = self._now_ms() + left_ms
            case _:
                job.text = text
                self._set(job, after)
        return True

    def _is_published(self, job: Job, slot_ms: int) -> bool:
        """Publish the message of a slot. Returns False if that failed: then this beat stands back for a while."""
        said, _ = self._ready()
        if self._lease is None:
            return False
        self._lease.require()
        slot = datetime.fromtimestamp(slot_ms / 1_000, UTC).isoformat()
        entry = copy.copy(job.entry)
        message_id = str(uuid5(IDS, f"{said.namespace}\n{entry.name}\n{slot_ms}"))
        log.info("beat: sending %s (%s) of %s", entry.name, entry.task, slot)
        try:
            headers = {**(entry.options.get("headers") or {}), SLOT_HEADER: slot}
            entry.options = {"task_id": message_id, **entry.options, "headers": headers}
            self.apply_async(entry, advance=False)  # by the app's producers, whose retries have an end
        except Exception as error:  # noqa: BLE001  # of any broker and any task
            log.error("beat: %s of %s was not sent: %s", entry.name, slot, error)  # noqa: TRY400  # a sentence
            self._stand_back()
            return False
        return True

    def _stand_back(self) -> None:
        """Let another beat try: it may reach the broker."""
        self._forget_lead()
        self._stand_back_until = self._clock.now() + PAUSE_SECONDS

    def _forget_lead(self) -> None:
        lease, self._lease = self._lease, None
        self._version, self._jobs, self._tidy_at = "", {}, 0.0
        if lease is not None and lease.is_trusted:
            try:
                lease.release()
            except SegmentedError as error:
                log.warning("beat: the lead could not be handed over and ends with its lease: %s", error)

    def _tidy(self, found: BeatRead | None) -> None:
        """Mark the states of entries that are gone, and forget those that have been for a day."""
        if found is None:  # the states of this version are known: read them again
            self._version = ""
            return
        said, store = self._ready()
        self._tidy_at = self._clock.now() + TIDY_SECONDS
        for name, text in found.runs.items():
            if name in self._jobs:
                continue
            try:
                state = read_state(text)
            except InvalidInput:
                continue
            if state.gone is None:
                after = replace(state, gone=found.now_ms, by=self._token).written()
            elif found.now_ms - state.gone > GONE_MS:
                after = ""
            else:
                continue
            store.execute(MoveEntry(said.namespace, self._token, name, text, after))

    def _now_ms(self) -> int:
        """Return the server's time, by what it was at the last look."""
        return self._read_ms + round((self._clock.now() - self._read_at) * 1_000)

    def _ready(self) -> tuple[BeatSettings, Store]:
        if self._said is None or self._store is None:
            raise InvalidInput("the scheduler was created lazily, for its banner alone")
        return self._said, self._store

    def _tell(self, sentence: str) -> None:
        """Log a sentence once."""
        if sentence not in self._told:
            self._told.add(sentence)
            log.error("beat: %s", sentence)


@contextmanager
def _ended_later() -> Iterator[None]:
    """Let a signal to end wait until a slot that was published is also marked: the next leader would send it again."""
    if threading.current_thread() is not threading.main_thread():  # signals are not handled here
        yield
        return
    came: list[int] = []
    before = {one: signal.signal(one, lambda got, _: came.append(got)) for one in ENDING}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler or signal.SIG_DFL)  # None: it was not set from Python
        for number in came[:1]:
            signal.raise_signal(number)
