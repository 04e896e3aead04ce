"""Values that cross a boundary: orders, sequencers, durations, profiles and errors."""

import copy
import importlib
import inspect
import pickle
import pkgutil
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import FrozenInstanceError, asdict, dataclass, field, replace
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
import redis
from hypothesis import given, strategies as st

import segmented
from segmented import Dedup, Lock, MemoryStore, Order, Outbox, Pool, RedisStore, single_flight
from segmented.errors import InvalidInput, NotGranted, SegmentedError
from segmented.keys import fenced_keys
from segmented.locks import GetSetLock, MultiLock, QuorumStore, locked
from segmented.locks.durations import DEFAULT_TIMEOUT
from segmented.locks.fencing import FenceGuard, Sequencer
from segmented.models import Busy, Decided, Settled, SoldOut
from segmented.models.pools import Profile, parse_profile
from segmented.orders import Gate, WorkTerms, connect
from segmented.orders.forgetting import forget
from segmented.orders.relaying import relay
from segmented.testing import ManualClock
from segmented.values import light_dataclass
from tests.support.reference import MODULES, public_names

REFUSALS = [
    (SoldOut("a", 3, available=2, reserved=5, sequence=9), "sold out (2 units free, 5 on hold, 3 asked for)"),
    (Busy("a", 9, 100), "no segment was free before the deadline"),
    (Busy("a", 9, 100, is_in_hand=True), "another holder works on it"),
    (Decided("a", "confirmed", 3, 0, None, 9, replay=True), "already confirmed"),
]


@pytest.mark.parametrize(("refusal", "words"), REFUSALS, ids=[words for _, words in REFUSALS])
def test_a_refusal_in_a_with_statement_raises_instead_of_running_the_body(
    refusal: SoldOut | Busy | Decided, words: str
) -> None:
    with pytest.raises(NotGranted) as caught, refusal:
        pytest.fail("the body ran")
    assert caught.value.refusal is refusal
    assert str(caught.value) == f"order 'a' was not granted: {words}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v1:exclusive:name",
        "v1:exclusive::7",
        "v2:exclusive:name:7",
        "v1:both:name:7",
        "v1:exclusive:name:0",
        "v1:exclusive:name:07",
        "v1:exclusive:name:-7",
        "v1:exclusive:name:9223372036854775808",
        "v1:exclusive:name:7 ",
        "v1:exclusive:name:7\n",
        "v1:exclusive:name:\u0667",
        "v1:exclusive:na me:7",
        "v1:exclusive:na:me:7",
        "v1:exclusive:%6eame:7",
        "v1:exclusive:%ff:7",
        "v1:exclusive:%0A:7",
        "v1:exclusive:%:7",
        f"v1:exclusive:{'a' * 1_025}:7",
    ],
)
def test_what_no_lease_has_given_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        Sequencer.parse(text)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 200


@given(st.lists(st.text("a{}:", min_size=1, max_size=5).flatmap(lambda key: st.sampled_from([key, f"{key}:fence"]))))
def test_no_two_values_have_a_key_in_common(keys: list[str]) -> None:
    taken: list[str] = []
    for key in set(keys):
        with suppress(InvalidInput):
            taken += fenced_keys(key)
    assert sorted(taken) == sorted(set(taken))


@pytest.mark.parametrize("key", ["", "{", "}", "a}b", "a{b", "{}a", "{a}", "{a}:fence", "x{a}:fence"])
def test_a_key_without_a_fence_of_its_own_in_its_slot_is_refused(key: str) -> None:
    with pytest.raises(
        InvalidInput, match=r"is empty, has braces that are not a hash tag beside other text, or ends as a fence$"
    ):
        fenced_keys(key)


SHORT = timedelta(milliseconds=50)
STORE = MemoryStore()


def works() -> int:
    return 7


MAKERS: list[tuple[str, Callable[[Any], object]]] = [
    ("ttl", lambda given: Lock(STORE, "n", ttl=given)),
    ("renew_max", lambda given: Lock(STORE, "n", renew_max=given)),
    ("replicas_timeout", lambda given: Lock(STORE, "n", replicas_timeout=given)),
    ("lock_delay", lambda given: Lock(STORE, "n", lock_delay=given)),
    ("timeout", lambda given: Lock(STORE, "n").acquire(given).release()),
    ("ttl", lambda given: MultiLock(STORE, ["n"], ttl=given)),
    ("ttl", lambda given: GetSetLock(STORE, "n", ttl=given)),
    ("ttl", lambda given: locked("n", store=STORE, ttl=given)(works)),
    ("timeout", lambda given: locked("n", store=STORE, timeout=given)(works)),
    ("keep", lambda given: single_flight(STORE, keep=given)),
    ("keep_none", lambda given: single_flight(STORE, keep=60, keep_none=given)),
    ("keep_failures", lambda given: single_flight(STORE, keep=60, keep_failures=given)),
    ("timeout", lambda given: single_flight(STORE, keep=60, timeout=given)),
    ("keep", lambda given: Dedup(STORE, "n", keep=given)),
    ("keep_failures", lambda given: Dedup(STORE, "n", keep_failures=given)),
    ("ttl", lambda given: Dedup(STORE, "n", ttl=given)),
    ("ttl", lambda given: Pool(STORE, "n", ttl=given)),
    ("hold", lambda given: Pool(STORE, "n", ttl=0.01, hold=given)),
    ("publish_after", lambda given: Outbox(publish_after=given)),
    ("ttl", lambda given: WorkTerms(ttl=given)),
    ("timeout", lambda given: WorkTerms(segment_timeout=given)),
    ("answer_timeout", lambda given: QuorumStore([MemoryStore() for _ in range(3)], answer_timeout=given).close()),
]


@pytest.mark.parametrize(("name", "make"), MAKERS, ids=[f"{number}-{name}" for number, (name, _) in enumerate(MAKERS)])
def test_a_duration_is_in_seconds_or_a_timedelta(name: str, make: Callable[[Any], object]) -> None:
    make(0.05)
    make(SHORT)
    for wrong in (-1, -SHORT, "1"):
        with pytest.raises(InvalidInput, match=rf"^{name} (of|is a)"):
            make(wrong)


def test_times_of_stores_databases_and_clocks_may_be_timedeltas(tmp_path: Path) -> None:
    clock = ManualClock()
    clock.advance(timedelta(minutes=1))
    assert clock.now() == 1_060.0
    nobody = redis.Redis(port=1)
    RedisStore(nobody, patience=SHORT).close()
    with pytest.raises(InvalidInput, match=r"^patience is a number of seconds, 0 or more, not datetime\.timedelta"):
        RedisStore(nobody, patience=-SHORT)
    with Gate(connect(f"sqlite:///{tmp_path}/orders.db", timeout=timedelta(seconds=2))) as gate:
        pool = Pool(STORE, "n")
        for call in (relay, forget):
            with pytest.raises(InvalidInput, match=r"must be positive, not -0\.05 s$"):
                call(pool, gate, timeout=-SHORT)
    with pytest.raises(InvalidInput, match=r"a positive timeout, not 10 and -0\.05 s$"):
        connect("sqlite:///orders.db", timeout=-SHORT)


DEFAULTS: dict[str, set[object]] = {"renew": {False}, "timeout": {DEFAULT_TIMEOUT}}
NOT_WAITING = {"begin", "call", "perform", "__call__"}
"""Calls of Dedup do not wait unless asked to: a repeat learns that the first one is in flight."""
OTHERWISE = {
    "WebOptions": "as Dedup: a repeat gets 409 while the first one is in flight",
    "idempotent": "as WebOptions",
    "connect": "a database that does not reply is given up",
    "forget": "it works until all is dropped",
    "relay": "it works until all is copied",
    "RedisStore": "a server that does not reply at the first contact is given up",
    "AsyncRedisStore": "as RedisStore",
}
"""Other meanings of a time-out, each with the reason for its default."""


def signatures() -> list[tuple[str, str, inspect.Parameter]]:
    """Return each parameter of each public class and function of the library, without the command line and servers."""
    found = []
    for module in (import_module(name) for name in MODULES if name not in LEFT_OUT):
        for name in public_names(module):
            value = getattr(module, name)
            calls = [value] if inspect.isfunction(value) else []
            if inspect.isclass(value) and not issubclass(value, Exception):
                calls = [one for one in vars(value).values() if inspect.isfunction(one)]
            found += [
                (name, call.__name__, one) for call in calls for one in inspect.signature(call).parameters.values()
            ]
    return found


LEFT_OUT = {"segmented.compat", "segmented.testing", "segmented.models"}
"""redis-py's own names; a clock, which moves by seconds; answers."""


def test_every_waiting_call_has_the_same_default_and_no_lock_renews_by_itself() -> None:
    wrong = [
        (name, call, one.name, one.default)
        for name, call, one in signatures()
        if one.name in DEFAULTS and call not in NOT_WAITING and name not in OTHERWISE
        if one.default is not inspect.Parameter.empty and one.default not in DEFAULTS[one.name]
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "profile", "wanted"),
    [
        ("memory", Profile("memory"), 0),
        ("database", Profile("database"), 0),
        ("fsync", Profile("fsync", 0, 1_000), 1),
        ("fsync/500ms", Profile("fsync", 0, 500), 1),
        ("replicated:2", Profile("replicated", 2, 1_000), 2),
        ("replicated:1/60000ms", Profile("replicated", 1, 60_000), 1),
    ],
)
def test_a_profile_is_written_as_it_is_read(text: str, profile: Profile, wanted: int) -> None:
    found = parse_profile(text)
    assert (found, str(found), found.wanted, found.waits) == (profile, text, wanted, wanted > 0)


@pytest.mark.parametrize(
    "text",
    [
        *("", "disk", "replicated", "replicated:0", "replicated:101", "replicated:1000", "replicated:-1", "fsync "),
        *("memory/5ms", "database/5ms", "fsync/0ms", "fsync/60001ms", "fsync/5s", "fsync/5", "Fsync", "replicated:٣"),
        *(None, 5, b"fsync"),
    ],
)
def test_another_text_is_refused_with_those_that_are_known(text: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_profile(text)
    assert str(caught.value) == (
        f"profile {text!r} is not known; give memory, replicated:N with 1 to 100 replicas, fsync or database; "
        "replicated:N and fsync may say how long to wait, up to 60000 ms, as in fsync/500ms"
    )


GIVEN: Final[dict[str, Any]] = {
    "answer": "an answer of the gate",
    "differing": ("segments 4 instead of 8",),
    "failures": {"n": InvalidInput("it is too long")},
    "found": (1, 4),
    "free_in": 1.5,
    "refusal": SoldOut("o-1", 3, 2, 1, 9),
    "replay": SimpleNamespace(message_id="m"),
    "seen": (1, 7),
    "settled": Settled("o-1", "expired", 1, 0, None, 9, replay=True),
}
"""Arguments that are neither a text nor a number, by name."""


def _kinds(kind: type[SegmentedError]) -> Iterator[type[SegmentedError]]:
    yield kind
    for found in kind.__subclasses__():
        yield from _kinds(found)


def _all_kinds() -> list[type[SegmentedError]]:
    """Return all errors but those of the Celery tasks, whose import has every worker connect, and of Django's app."""
    for module in pkgutil.walk_packages(segmented.__path__, "segmented."):
        if not re.search(r"__main__$|\.migrations\.|\.celery|\.django|\.testing|\.cli", module.name):
            importlib.import_module(module.name)
    return sorted({kind for kind in _kinds(SegmentedError) if kind.__module__.startswith("segmented.")}, key=str)


def _made(kind: type[SegmentedError]) -> SegmentedError:
    """Make an error with an argument for every parameter."""
    _, *parameters = inspect.signature(kind.__init__).parameters.values()
    given: dict[str, Any] = {}
    for one in parameters:
        plain = {"str": one.name, "int": 7, "float": 1.5, "bool": True}
        given[one.name] = GIVEN.get(one.name, plain.get(str(one.annotation).partition(" |")[0]))
    return kind(**given)


@pytest.mark.parametrize("kind", _all_kinds(), ids=lambda kind: kind.__name__)
def test_an_error_that_was_pickled_or_copied_is_the_same(kind: type[SegmentedError]) -> None:
    error = _made(kind)
    error.add_note("and its units could not be given back")
    for found in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301  # our own bytes
        assert (type(found), str(found), repr(found)) == (kind, str(error), repr(error))
        assert vars(found).keys() == vars(error).keys()


def test_resources_are_apart_and_may_be_forgotten() -> None:
    guard = FenceGuard()
    guard.check("one", token=9)
    guard.check("another", token=1)
    assert (guard.newest("one"), guard.newest("another"), guard.newest("a third")) == (9, 1, None)
    guard.forget("one")
    guard.forget("never seen")
    guard.check("one", token=1)


def _value(decorate: Callable[..., Any]) -> Callable[..., Any]:
    @decorate(frozen=True, slots=True)
    class Value:
        units: int
        secret: str = field(default="", repr=False)
        times: tuple[int, ...] = field(default=(), compare=False)

    return Value


def test_a_light_value_is_shown_compared_and_copied_as_one_of_the_standard_library() -> None:
    seen = []
    for kind in (_value(light_dataclass), _value(dataclass)):
        one = kind(2, "s", (1,))
        others = [kind(2, "s"), kind(2, "t"), kind(3, "s"), (2, "s")]
        assert [(one == other, len({one, other})) for other in others] == [(True, 1), *[(False, 2)] * 3]
        seen.append((repr(one), asdict(one), repr(replace(one, units=5)), copy.copy(one) == one))
    assert seen[0] == seen[1]
    assert seen[0][0].endswith(".Value(units=2, times=(1,))")


@pytest.mark.parametrize("name", ["quantity", "order_id"])
def test_an_order_whose_fields_were_checked_cannot_be_changed(name: str) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(Order("o-1", 1), name, -1)
