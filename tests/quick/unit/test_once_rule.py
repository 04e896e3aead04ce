"""Rules of deduplicated tasks that make no sense: one sentence each, when they are made or when the task is."""

from contextlib import closing
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

pytest.importorskip("celery")

from collections.abc import Callable, Iterator

from celery import Celery

from segmented.dedup.celery import Once, OnceRule, latest, per, serial, unique
from segmented.dedup.celery.rule import Period
from segmented.dedup.terms import DedupOptions
from segmented.errors import InvalidInput
from segmented.stores.memory import MemoryStore
from segmented.testing import ManualClock

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def app() -> Iterator[Celery]:
    with closing(Celery("rules", broker="memory://", set_as_current=False)) as made:
        yield made


def work(order_id: str, *, amount: int = 1) -> None:
    """Nothing."""


CASES: list[tuple[Callable[[], OnceRule], str]] = [
    (lambda: unique(keep=-1), "keep of -1 s is not a duration: give 0 or more"),
    (lambda: unique(keep_failures=-0.5), "keep_failures of -0.5 s is not a duration: give 0 or more"),
    (lambda: unique(queue_for=-1), "queue_for of -1 s is not a duration: give 0 or more"),
    (lambda: unique(resend_after=-1), "resend_after of -1 s is not a duration: give 0 or more"),
    (lambda: unique(keep=True), "keep is a number of seconds or a timedelta, not bool: True"),
    (
        lambda: unique(keep="1 hour"),
        "keep is a number of seconds, a timedelta or a text such as '30s', '5m', '2h' or '1d', not '1 hour'",
    ),
    (lambda: latest(quiet=-1), "quiet of -1 s is not a duration: give 0 or more"),
    (lambda: latest(quiet=5, at_most=2), "at_most of 2 is less than quiet of 5: give quiet or more"),
    (lambda: serial(at_once=0), "at_once of 0 is not a number of runs: give 1 to 1000"),
    (lambda: serial(at_once=1.5), "at_once of 1.5 is not a number of runs: give 1 to 1000"),  # type: ignore[arg-type]  # that is the test
    (
        lambda: serial(key_space="orders"),
        "key_space 'orders' needs a key that its tasks have in common, as in \"{order_id}\"",
    ),
    (
        lambda: unique("{order_id}", key_space=""),
        "a key_space is a text of 1 to 255 characters that can be printed, not ''",
    ),
    (lambda: per("days"), "a period of 'days' is not one: give one of hour, day, week, month, year"),  # type: ignore[arg-type]  # that is the test
    (lambda: per("day", tz="Mars"), "tz of 'Mars' is not a time zone: give a name such as 'Europe/Berlin'"),
]


@pytest.mark.parametrize(("rule", "sentence"), CASES, ids=[sentence for _, sentence in CASES])
def test_a_rule_that_makes_no_sense_is_refused_as_it_is_made(rule: Callable[[], OnceRule], sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        rule()
    assert str(caught.value) == sentence


@pytest.mark.parametrize("options", [{"ttl": 0}, {"ttl": -1}, {"remember": 0}, {"size_max": 0}], ids=str)
def test_a_time_or_size_that_is_none_is_refused_as_the_rule_is_made_and_named(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        unique(**options)
    assert any(name in str(caught.value) for name in options)


def test_a_time_may_be_said_in_words() -> None:
    assert unique(keep="2h").terms("").keep_ms == unique(keep=7200).terms("").keep_ms
    assert latest(quiet="5s", at_most="1m").at_most_ms == 60_000
    words, numbers = (
        unique(ttl=ttl, queue_for=queue_for, resend_after=resend_after, remember=remember)
        for ttl, queue_for, resend_after, remember in (("30s", "2h", "5m", "1d"), (30, 7200, 300, 86_400))
    )
    assert (words.terms(""), words.queue_ms) == (numbers.terms(""), numbers.queue_ms)
    assert DedupOptions("1d", "5m", "30s").terms("") == DedupOptions(86_400, 300, 30).terms("")


def test_copies_are_recognised_for_as_long_as_a_dead_worker_keeps_its_run() -> None:
    assert unique(ttl="1h", remember=60).terms("").remember_ms == 3_600_000


@pytest.mark.parametrize(
    ("begins", "hours"), [(datetime(2026, 3, 28, tzinfo=BERLIN), 71), (datetime(2026, 10, 24, tzinfo=BERLIN), 73)]
)
def test_a_daily_task_runs_once_a_day_also_on_days_of_23_and_25_hours(
    app: Celery, begins: datetime, hours: int
) -> None:
    clock = ManualClock(start=begins.timestamp())
    ran: list[datetime] = []
    app.conf.update(once_store=MemoryStore(clock=clock), task_always_eager=True)
    rule = per("day", lambda: "all", tz="Europe/Berlin", clock=clock)

    def note() -> None:
        ran.append(datetime.fromtimestamp(clock.now(), BERLIN))

    task = app.task(base=Once, name="daily", once=rule, shared=False)(note)
    for _ in range(hours):
        task.delay()
        clock.advance(3_600)
    assert [(one.day - begins.day, one.hour) for one in ran] == [(0, 0), (1, 0), (2, 0)]


def test_a_slot_is_that_of_the_calendar_in_its_time_zone(app: Celery) -> None:
    clock = ManualClock(start=datetime(2026, 10, 24, 21, 59, tzinfo=UTC).timestamp())

    def keys(period: Period, tz: str) -> list[str]:
        rule = per(period, "{order_id}", tz=tz, clock=clock)
        name = f"{period} {tz}"
        task = app.task(base=Once, name=name, once=rule, lazy=False, shared=False)(work)
        return [task.once_key("a"), task.once_key("a", amount=2)]

    def slots() -> dict[str, str]:
        found = {}
        for period, tz in (("day", "Europe/Berlin"), ("day", "UTC"), ("hour", "Europe/Berlin"), ("month", "UTC")):
            same, also = keys(period, tz)  # type: ignore[arg-type]  # each is a period
            assert same == also
            found[f"{period} {tz}"] = same
        return found

    before = slots()
    clock.advance(120)
    after = slots()
    assert {name for name in before if before[name] != after[name]} == {"day Europe/Berlin", "hour Europe/Berlin"}
    clock.advance(2 * 3600)  # 00:01 UTC, 02:01 in Berlin, before its clocks go back
    first = slots()
    clock.advance(3600)  # 02:01 once more
    second = slots()
    assert {name for name in first if first[name] != second[name]} == {"hour Europe/Berlin"}


def test_tasks_of_one_key_space_share_a_key_however_they_name_its_argument(app: Celery) -> None:
    def refund(number: str, reason: str = "") -> None:
        """Nothing."""

    tasks: list[Any] = [
        app.task(base=Once, name=name, once=unique(key, payload=False, key_space="orders"), lazy=False, shared=False)(
            body
        )
        for name, key, body in (("charge", "{order_id}", work), ("refund", "{number}", refund))
    ]
    tasks.append(app.task(base=Once, name="other", once=unique("{order_id}"), lazy=False, shared=False)(work))
    same, also, other = (task.once_key("o-7") for task in tasks)
    assert same == also != other
    prints = {
        task.once_plan.identity(("o-7",), {}, given=given).payload_print for task in tasks[:2] for given in (None, "k")
    }
    assert len(prints) == 2, "a call of another task is no repeat"
    assert len({task.once_plan.identity(("o-7",), {}, given="k").key for task in tasks[:2]}) == 1


@pytest.mark.parametrize("other", [serial("{order_id}", key_space="orders"), unique("{order_id}", key_space="orders")])
def test_tasks_of_a_key_space_whose_runs_do_not_meet_are_refused(app: Celery, other: OnceRule) -> None:
    first = serial("{order_id}", at_once=2, key_space="orders")
    app.task(base=Once, name="charge", once=first, lazy=False, shared=False)(work)
    with pytest.raises(InvalidInput) as caught:
        app.task(base=Once, name="refund", once=other, lazy=False, shared=False)(work)
    assert str(caught.value) == (
        "tasks 'charge' and 'refund' share the key_space 'orders', and have other rules: give both unique(...), or "
        "both serial(...) with the same at_once"
    )


KEYS: list[tuple[Any, str]] = [
    ("{orderid}", "orderid"),
    ("{order_id.", "{order_id."),
    ("always", "names no argument"),
    (unique("{nobody}"), "nobody"),
    (unique("{order_id}", payload="{nobody}"), "nobody"),
    (unique(7), "7"),  # type: ignore[arg-type]  # that is the test
    (7, "once of task 'work' is 7: give unique(...), per(...), latest(...) or serial(...), a key expression, or a "),
    (unique, "give unique(...), per(...), latest(...) or serial(...), a key expression, or a callable"),
]


@pytest.mark.parametrize(("once", "named"), KEYS, ids=lambda part: getattr(part, "__name__", str(part))[:40])
def test_a_key_that_does_not_fit_the_task_is_refused_at_its_import_with_lazy_false(
    app: Celery, once: object, named: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        app.task(base=Once, name="work", once=once, lazy=False, shared=False)(work)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("once", [None, "{order_id}"])
def test_a_rule_for_a_task_that_is_made_already_is_refused_with_the_cure(app: Celery, once: str | None) -> None:
    task = app.task(base=Once, once=once, name="made", lazy=False, shared=False)(work)
    with pytest.raises(InvalidInput, match=r"^task 'made' was made with another rule, or none: give it where the task"):
        task.once = unique("{order_id}", keep=60)  # type: ignore[misc]  # as a user might
    with pytest.raises(InvalidInput, match=r"^task 'made' was made with another rule, or none: give it where the task"):
        type(task).once = unique("{order_id}", keep=60)


def test_a_task_of_the_base_without_a_rule_is_refused_with_its_name_and_the_option(app: Celery) -> None:
    class Ours(Once):
        abstract = True

    refused = pytest.raises(
        InvalidInput, match=r"^task 'silent.?' has base=Once and no once=\.\.\., so it would run for "
    )
    for base, name in ((Once, "silent"), (Ours, "silent2")):
        with refused:
            app.task(base=base, name=name, lazy=False, shared=False)(work)
    with refused:  # Celery has registered it, though its decoration failed
        app.tasks["silent"].delay("a")
    Ours.once = unique("{order_id}")
    task = app.task(base=Ours, name="kept", lazy=False, shared=False)(work)
    assert task.once_key("a") != task.once_key("b")


@pytest.mark.parametrize(
    "argument",
    [object(), float("nan"), {1: "a"}, b"a".join, "\ud800"],
    ids=["object", "nan", "key of a number", "method", "lone surrogate"],
)
def test_an_argument_that_has_no_stable_text_is_one_sentence_at_publication(app: Celery, argument: object) -> None:
    app.conf.once_url = "redis://127.0.0.1:1/2"  # not asked
    task = app.task(base=Once, name="whole", once=unique(), lazy=False, shared=False)(work)
    with pytest.raises(InvalidInput) as caught:
        task.delay("a", amount=argument)
    assert "'amount'" in str(caught.value)


@pytest.mark.parametrize("countdown", ["3", float("inf"), float("nan")])
def test_a_countdown_that_is_no_number_of_seconds_is_one_sentence(app: Celery, countdown: float) -> None:
    task = app.task(base=Once, name="due", once="{order_id}", lazy=False, shared=False)(work)
    with pytest.raises(InvalidInput, match=f"a countdown of {countdown!r} is not a number of seconds"):
        task.apply_async(("a",), countdown=countdown)


def test_an_app_whose_every_task_has_the_base_runs_those_without_a_rule() -> None:
    app = Celery("every", task_cls=Once, set_as_current=False)
    task = app.task(name="ordinary", lazy=False, shared=False)(work)
    app.finalize()
    assert task("a") is None
    assert isinstance(app.tasks["celery.chord"], Once), "Celery's own tasks have no rule"
