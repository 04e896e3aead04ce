"""One scheduler of many, on a store in memory: slots, states, entries that change, and bad input. No clock decides."""

import signal
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, NoReturn, TypeVar, cast

import pytest
from celery import Celery
from celery.schedules import crontab, schedule, solar

from segmented import MemoryStore
from segmented.celery.beat import Schedule, Scheduler
from segmented.celery.beat.schedule import EntryState, following, latest, print_of
from segmented.clock import ManualClock
from segmented.errors import InvalidInput, StoreUnavailable
from segmented.models.beat import BeatSuperseded, EntryDiffers, EntryEarly, EntryMoved
from segmented.protocol import ChangeEntry, LeadBeat, MoveEntry, Operation, ReadBeat
from tests.support.rings import require_module

AnswerT = TypeVar("AnswerT")

START = 1_700_000_000.0
"""Some Tuesday of 2023, 22:13:20 UTC."""
HOUR_MS = 3_600_000


def moment(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


class LeavingStore(MemoryStore):
    """A store that may be away."""

    is_away = False

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        if self.is_away:
            raise StoreUnavailable("the store is away")
        return super().execute(operation, deadline=deadline)


class Desk:
    """An app, its store, and beats whose clock the test moves."""

    def __init__(self, entries: dict[str, Any], **conf: Any) -> None:  # noqa: ANN401  # settings of Celery
        self.clock = ManualClock(START)
        self.store = LeavingStore(clock=self.clock)
        self.app = Celery("shop", broker="memory://", set_as_current=False)
        self.app.conf.update(beat_store=self.store, beat_schedule=entries, **conf)
        self.schedule = Schedule(self.app)
        self.fails = self.is_ended = False
        self.sent: list[tuple[str, str, str]] = []
        self.app.send_task = cast("Any", self._note)  # type: ignore[method-assign]  # messages are noted, not sent

    def _note(self, task: str, *_: object, **options: Any) -> None:  # noqa: ANN401  # options of a message
        if self.fails:
            raise OSError("the broker is away")
        self.sent.append((task, options["headers"]["beat_slot"][11:19], options["task_id"]))
        if self.is_ended:
            signal.raise_signal(signal.SIGTERM)

    def beat(self, **entries: Any) -> Scheduler:  # noqa: ANN401  # an entry
        """A beat, whose code may have other entries."""
        if entries:
            self.app.conf.beat_schedule = entries
        return Scheduler(self.app, clock=self.clock)

    def run(self, beat: Scheduler, seconds: float = 0.0) -> list[str]:
        """Tick until nothing is due, `seconds` later; return the tasks and slots that were sent."""
        self.clock.advance(seconds)
        before = len(self.sent)
        for _ in range(100):
            if beat.tick() > 0:
                break
        return [f"{task} {slot}" for task, slot, _ in self.sent[before:]]


@pytest.fixture
def desk() -> Desk:
    return Desk({"a": {"task": "a", "schedule": 60.0}})


def test_an_entry_is_sent_once_a_slot_of_a_grid_that_no_late_run_moves(desk: Desk) -> None:
    beat = desk.beat()
    assert desk.run(beat) == []
    assert [desk.run(beat, seconds) for seconds in (59, 1, 30, 47, 43, 0)] == [
        [],
        ["a 22:14:20"],
        [],
        ["a 22:15:20"],
        ["a 22:16:20"],
        [],
    ]


def test_last_runs_survive_a_restart_and_a_gap_is_caught_up_once(desk: Desk) -> None:
    first = desk.beat()
    desk.run(first)
    assert desk.run(first, 60) == ["a 22:14:20"]
    first.close()
    assert desk.run(desk.beat(), 10 * 60 + 5) == ["a 22:24:20"]
    (known,) = desk.schedule.entries()
    assert (known.count, known.is_of_code, known.is_being_sent) == (2, True, False)


def test_a_slot_that_is_later_than_beat_catch_up_is_skipped() -> None:
    desk = Desk({"a": {"task": "a", "schedule": 60.0}}, beat_catch_up=10)
    beat = desk.beat()
    desk.run(beat)
    assert [desk.run(beat, seconds) for seconds in (611, 48, 11)] == [[], [], ["a 22:24:20"]]


def test_a_crontab_and_an_interval_have_the_same_slots_on_every_machine() -> None:
    quarterly = crontab(minute="*/15", app=Celery("shop", set_as_current=False))
    night = crontab(minute=30, hour=3, day_of_week="sun", app=quarterly.app)
    assert following(quarterly, moment("2026-03-01T10:15:00")) == moment("2026-03-01T10:30:00")
    assert latest(quarterly, moment("2026-01-01T00:00:00"), moment("2026-03-01T10:29:59")) == moment(
        "2026-03-01T10:15:00"
    )
    assert latest(night, moment("2020-01-01T00:00:00"), moment("2026-03-06T00:00:00")) == moment("2026-03-01T03:30:00")
    assert latest(night, moment("2026-03-01T03:30:00"), moment("2026-03-06T00:00:00")) is None
    half = schedule(timedelta(seconds=0.5))
    assert [latest(half, 1_000, now) for now in (1_499, 1_500, 9_999)] == [None, 1_500, 9_500]


def test_entries_change_at_runtime_and_only_slots_after_the_change_count(desk: Desk) -> None:
    beat = desk.beat()
    desk.schedule.add("b", task="b", schedule=crontab(minute="*/5"), args=(1,), kwargs={"size": 2})
    desk.run(beat)
    assert desk.run(beat, 100) == ["a 22:14:20", "b 22:15:00"]
    desk.schedule.add("b", task="b", schedule=timedelta(seconds=20))
    assert [desk.run(beat, seconds) for seconds in (0, 19, 1)] == [[], [], ["a 22:15:20", "b 22:15:20"]]
    assert desk.schedule.remove("b")
    assert not desk.schedule.remove("b")
    assert desk.run(beat, 60) == ["a 22:16:20"]


def test_beats_with_two_versions_of_the_code_take_turns_and_lose_no_last_run(desk: Desk) -> None:
    """The leader's code says what is sent; the state of an entry that it lacks stays for a day."""
    old = desk.beat()
    desk.run(old)
    assert desk.run(old, 60) == ["a 22:14:20"]
    old.close()
    new = desk.beat(b={"task": "b", "schedule": 60.0})
    desk.run(new)
    assert desk.run(new, 90) == ["b 22:15:20"]
    new.close()
    assert desk.run(desk.beat(a={"task": "a", "schedule": 60.0})) == ["a 22:15:20"]


def test_a_changed_schedule_counts_from_its_first_sight(desk: Desk) -> None:
    beat = desk.beat()
    desk.run(beat)
    beat.close()
    assert desk.run(desk.beat(a={"task": "a", "schedule": 25.0}), 50) == []
    beat = desk.beat()
    assert [desk.run(beat, seconds) for seconds in (0, 24, 1)] == [[], [], ["a 22:14:35"]]


def test_a_slot_that_could_not_be_published_is_sent_again_with_the_same_id(desk: Desk) -> None:
    beat = desk.beat()
    desk.run(beat)
    desk.fails = True
    desk.clock.advance(60)
    assert beat.tick() == 0
    desk.fails = False
    assert beat.tick() == 1
    desk.clock.advance(1)
    assert desk.run(beat) == ["a 22:14:20"]


def test_a_beat_that_is_ended_while_it_sends_a_slot_marks_it_before_it_ends(desk: Desk) -> None:
    def ended(*_: object) -> NoReturn:
        raise SystemExit

    beat = desk.beat()
    desk.run(beat)
    desk.is_ended = True
    before = signal.signal(signal.SIGTERM, ended)  # as Celery's own handler does
    try:
        with pytest.raises(SystemExit):
            desk.run(beat, 60)
    finally:
        signal.signal(signal.SIGTERM, before)
    desk.is_ended = False
    beat.close()
    assert desk.run(desk.beat(), 1) == []
    assert [slot for _, slot, _ in desk.sent] == ["22:14:20"]


def test_a_store_that_is_away_for_a_while_ends_no_beat_and_loses_no_slot(desk: Desk) -> None:
    beat = desk.beat()
    desk.run(beat)
    desk.store.is_away = True
    assert [desk.run(beat, seconds) for seconds in (60, 30)] == [[], []]
    beat.close()
    assert desk.run(desk.beat()) == []
    desk.store.is_away = False
    assert desk.run(desk.beat(), 20) == ["a 22:14:20"]


def test_only_the_newest_leader_moves_an_entry_and_only_from_the_state_that_it_read() -> None:
    clock = ManualClock(START)
    store = MemoryStore(clock=clock)
    now_ms = int(START * 1000)
    assert store.execute(LeadBeat("n", 5)).now_ms == now_ms  # type: ignore[union-attr]  # it leads
    assert store.execute(MoveEntry("n", 5, "e", "", "one")) == EntryMoved()
    assert store.execute(MoveEntry("n", 5, "e", "", "two")) == EntryDiffers("one")
    assert store.execute(MoveEntry("n", 5, "e", "one", "two", now_ms + 7)) == EntryEarly(7)
    assert store.execute(LeadBeat("n", 6)).found.runs == {"e": "one"}  # type: ignore[union-attr]  # it leads
    assert store.execute(LeadBeat("n", 5)) == BeatSuperseded()
    assert store.execute(MoveEntry("n", 5, "e", "one", "two")) == BeatSuperseded()
    assert store.execute(MoveEntry("n", 6, "e", "one", "two")) == EntryMoved()
    assert store.execute(MoveEntry("n", 6, "e", "one", "two")) == EntryMoved()
    assert store.execute(ReadBeat("n")).runs == {"e": "two"}


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("nothing of ours", "entry 'b' was skipped: its definition cannot be read"),
        ('{"task":"b","schedule":{"moon":1},"args":[],"kwargs":{},"options":{}}', "entry 'b' was skipped"),
    ],
)
def test_an_entry_that_cannot_be_read_is_named_once_and_stops_no_other(
    desk: Desk, caplog: pytest.LogCaptureFixture, said: str, text: str
) -> None:
    desk.store.execute(ChangeEntry("shop", "b", "keep", said))
    beat = desk.beat()
    desk.run(beat)
    assert desk.run(beat, 60) == ["a 22:14:20"]
    (found,) = [record.getMessage() for record in caplog.records if "skipped" in record.getMessage()]
    assert found.startswith(f"beat: {text}")
    assert found.endswith("remove it with Schedule(app).remove('b')")


@pytest.mark.parametrize(("headers", "sent"), [(None, ["a 22:14:20", "b 22:14:20"]), ([1], ["a 22:14:20"])])
def test_an_entry_with_odd_headers_ends_no_beat(desk: Desk, headers: object, sent: list[str]) -> None:
    desk.schedule.add("b", task="b", schedule=60, options={"headers": headers})
    beat = desk.beat()
    desk.run(beat)
    assert sorted(desk.run(beat, 60)) == sent


def test_a_solar_schedule_has_one_slot_a_day() -> None:
    require_module("ephem", "ephem")
    sunset = solar("sunset", 52.52, 13.4, app=Celery("shop", set_as_current=False))
    first = following(sunset, moment("2026-03-01T12:00:00"))
    assert datetime.fromtimestamp(first / 1000, UTC).isoformat()[:16] == "2026-03-01T16:45"
    assert 23.9 < (following(sunset, first) - first) / HOUR_MS < 24.1
    assert latest(sunset, first, first + HOUR_MS) is None
    assert latest(sunset, first - HOUR_MS, first + HOUR_MS) == first


def test_a_crontab_skips_the_hour_that_comes_twice_and_moves_one_that_is_not_there() -> None:
    app = Celery("shop", set_as_current=False, timezone="Europe/Berlin")
    minutely, at_half_past_two = crontab(app=app), crontab(minute=30, hour=2, app=app)
    assert following(minutely, moment("2026-10-25T00:59")) == moment("2026-10-25T02:00")
    assert following(at_half_past_two, moment("2026-03-28T12:00")) == moment("2026-03-29T01:30")
    assert following(at_half_past_two, moment("2026-10-25T00:30")) == moment("2026-10-26T01:30")


def test_a_waiting_beat_names_the_entries_that_the_leader_lacks(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    leader, other = desk.beat(), desk.beat(a={"task": "a", "schedule": 60.0}, b={"task": "b", "schedule": 60.0})
    other.max_interval = 0.0
    desk.run(leader)
    for _ in range(2):
        other.tick()
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == (
        "beat: entry 'b' is not sent: the beat that leads has other code. Stop it if it is old; if it is another "
        "app's, give each app a beat_namespace of its own"
    )


def test_an_entry_of_a_server_whose_clock_went_back_is_named(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    ahead = EntryState(int(START * 1000) + 24 * HOUR_MS, print_of(schedule(60)))
    desk.store.execute(LeadBeat("shop", 1))
    desk.store.execute(MoveEntry("shop", 1, "a", "", ahead.written()))
    beat = desk.beat()
    assert [desk.run(beat, seconds) for seconds in (0, 60)] == [[], []]
    assert "'a' is not sent before 2023-11-15 22:13 UTC, its last slot: the server's clock was ahead" in caplog.text
    assert desk.schedule.reset("a")
    assert [desk.run(beat, seconds) for seconds in (0, 60)] == [[], ["a 22:15:20"]]


def test_an_entry_whose_state_cannot_be_read_is_not_sent_until_it_is_reset(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.store.execute(LeadBeat("shop", 1))
    desk.store.execute(MoveEntry("shop", 1, "a", "", "[]"))
    beat = desk.beat()
    desk.run(beat)
    assert desk.run(beat, 60) == []
    assert "entry 'a' is not sent: its state is not one: '[]'; forget it with Schedule(app).reset('a')" in caplog.text
    assert desk.schedule.reset("a")
    assert [desk.run(beat, seconds) for seconds in (0, 60)] == [[], ["a 22:15:20"]]


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"task": "b", "schedule": "soon"}, "entry 'b' has a schedule of 'soon'"),
        ({"task": "", "schedule": 5}, "entry 'b' needs the name of its task, not ''"),
        ({"task": "b", "schedule": 5, "args": [object()]}, "entry 'b' cannot be stored"),
        ({"task": "b", "schedule": 0}, "entry 'b' has a schedule of 0"),
        ({"task": "b", "schedule": inf}, "entry 'b' has a schedule of inf"),
    ],
)
def test_an_entry_that_no_beat_could_read_is_refused(desk: Desk, entry: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        desk.schedule.add("b", **entry)
    with pytest.raises(InvalidInput, match="is in beat_schedule of the code: change it there"):
        desk.schedule.add("a", task="a", schedule=5)


@pytest.mark.parametrize(
    ("conf", "sentence"),
    [
        ({"beat_schedule": {"a": {"task": "a", "schedule": "soon"}}}, "entry 'a' of beat_schedule"),
        ({"beat_schedule": {"a": {"tusk": "a"}}}, "entry 'a' of beat_schedule cannot be read"),
        ({"beat_delivery": "twice"}, "beat_delivery is 'twice': give one of at_least_once, at_most_once"),
        ({"beat_store": None}, "the app 'shop' has no beat_url: set it to the Redis server of the schedule"),
        ({"beat_ttl": -1}, "beat_ttl"),
    ],
)
def test_settings_that_make_no_sense_end_the_beat_with_one_sentence(
    desk: Desk, capsys: pytest.CaptureFixture[str], conf: dict[str, Any], sentence: str
) -> None:
    desk.app.conf.update(conf)
    with pytest.raises(SystemExit) as ended:
        Scheduler(desk.app)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
