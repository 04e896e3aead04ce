"""A run is the work on one key, under a lease that is renewed while the body works; a replay answers repeats.

Its protocol is a pair of plans: begin the run or learn why not, and keep its outcome. A `StoreEffect` is an effect in
the store itself. It runs in the same script that keeps the outcome: once, or not at all.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar

from segmented.dedup.outcomes import NeverAwaited, failure_written
from segmented.errors import (
    AttemptSuperseded,
    CallCancelled,
    EffectUnknown,
    InFlight,
    InvalidInput,
    OtherPayload,
    RunLost,
    SegmentedError,
    StoreError,
    StoreRefused,
    WrongKind,
)
from segmented.keys import once_keys
from segmented.locks.durations import checked_timeout
from segmented.locks.keeper import OWED_MAX, async_keeper, thread_keeper
from segmented.locks.lease import AsyncHeldLease, HeldLease
from segmented.locks.lease_state import LeaseState, Renewal, trusted_until
from segmented.models import Acquired, Released
from segmented.models.dedup import (
    AttemptOutdated,
    KeyHeld,
    MessageCancelled,
    MessageEarly,
    OutcomeKept,
    PayloadDiffers,
    RunBegun,
    RunFinished,
)
from segmented.plans import Now, Plan, Within, perform, run_async, run_sync
from segmented.plans.waiting import UNDO_SECONDS, wait_for
from segmented.protocol import FinishRunWithEffect

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from segmented.clock import Duration
    from segmented.dedup.outcomes import OutcomeForm
    from segmented.dedup.terms import NextAttempt, RunClaim
    from segmented.models.dedup import OutcomeKind
    from segmented.plans.drivers import AsyncStore, Store
    from segmented.protocol import BeginRun, FinishRun


Begun = tuple[RunBegun, float]
"""The server's answer, and the local time at which its lease starts."""
RENEW_MAX: Final = 7 * 24 * 3600.0
"""Maximum seconds for which a run is renewed, so that a hanging body does not hold its key forever."""
RENEWAL: Final = Renewal(is_wanted=True, seconds_max=RENEW_MAX)


def is_in_flight(answer: object) -> bool:
    """Return whether waiting can help: not if only a human or a resolver can end the state."""
    return isinstance(answer, KeyHeld) and answer.state != "unknown"


def begin_plan(claim: RunClaim, beginning: BeginRun, timeout: float | None) -> Plan[Begun | OutcomeKept]:
    """Begin the run, waiting up to `timeout` seconds for another call with the key to end (0: do not wait).

    Raises the error of `refusal` for the answer, and RunLost if beginning took longer than the lease; nothing is left
    behind then.
    """
    answer, asked_at = yield from wait_for(
        beginning, channel=claim.channel, timeout=timeout, is_busy=is_in_flight, undo=claim.releasing
    )
    if isinstance(answer, RunBegun):
        now = yield from perform(Now())
        if now < trusted_until(asked_at, answer.ttl_ms):
            return answer, asked_at
        with suppress(SegmentedError):  # the lease expires on its own
            yield from perform(Within(claim.releasing(), now + UNDO_SECONDS))
        raise RunLost(claim.name)
    if isinstance(answer, OutcomeKept):
        return answer
    raise refusal(claim.name, answer)


def refusal(
    key: str, answer: KeyHeld | PayloadDiffers | MessageCancelled | MessageEarly | AttemptOutdated | None
) -> InFlight | OtherPayload | EffectUnknown | CallCancelled | AttemptSuperseded:
    """Return the error that says why a call is not run."""
    match answer:
        case KeyHeld(message, "unknown"):
            return EffectUnknown(key, message)
        case KeyHeld(message, state, free_in_ms):
            return InFlight(key, message, state, None if free_in_ms is None else free_in_ms / 1000)
        case PayloadDiffers(message):
            return OtherPayload(key, message)
        case MessageCancelled():
            return CallCancelled(key)
        case AttemptOutdated(attempt):
            return AttemptSuperseded(key, attempt)
    return InFlight(key, "?", "waiting", None)  # the deadline came before its first turn in the queue


def finish_plan(
    claim: RunClaim, finishing: FinishRun, effect: StoreEffect | None, deadline: float
) -> Plan[RunFinished]:
    """Keep the outcome and perform the effect in the same step. Raises RunLost if the run has another holder."""
    operation = finishing if effect is None else FinishRunWithEffect(finishing, effect.script, *effect.texts())
    answer = yield from perform(Within(operation, deadline))
    if isinstance(answer, RunFinished):
        return answer
    raise RunLost(claim.name)


@dataclass(frozen=True, slots=True)
class StoreEffect:
    """Lua that runs in the step that keeps a run's outcome, on the same server. It returns the result, as JSON.

    `script` is the body of a function with its own `KEYS` and `ARGV`. It runs once per key, however often the message
    is delivered, and never for a holder that was overtaken. A script does not roll back: check everything before the
    first write, so that a failing effect leaves nothing. On a cluster its keys must be in the slot of the record: put
    `Run.hash_tag` into their names.

    ```python
    StoreEffect("return redis.call('INCRBY', KEYS[1], ARGV[1])", keys=["points:7"], arguments=[10])
    ```
    """

    script: str
    keys: Sequence[str] = field(default=())
    arguments: Sequence[str | int] = field(default=())

    def __post_init__(self) -> None:
        """Check the script, keys and arguments."""
        text: object = self.script
        if not isinstance(text, str) or not text.strip():
            raise InvalidInput("an effect needs the text of its Lua")
        for what, found in (("keys", self.keys), ("arguments", self.arguments)):
            if isinstance(found, str) or any(type(one) is bool or not isinstance(one, str | int) for one in found):
                raise InvalidInput(f"the {what} of an effect are a list of texts or whole numbers, not {found!r:.80}")

    def texts(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the keys and the arguments as they are sent: of an enumeration's member, the value."""
        return tuple(map(_sent, self.keys)), tuple(map(_sent, self.arguments))


def _sent(value: str | int) -> str:
    return str.__str__(value) if isinstance(value, str) else int.__repr__(value)


_log: Final = logging.getLogger("segmented.dedup")


class RunState(LeaseState):
    """The shared part of a sync and an async run."""

    claim: RunClaim
    is_replay: Literal[False] = False
    fencing_token: int
    """Return the fencing token. It grows with every run of the key; pass it to the systems that the body writes to."""
    _form: OutcomeForm
    _owed: LeaseState | None = None
    """Repeats the write of an outcome that the store could not keep; the keeper calls it."""
    next_text: str = ""
    """Text of the next message in the line, for the caller to publish; "" if there is none."""

    @property
    def key(self) -> str:
        """Return the record's key."""
        return self.claim.record.key

    @property
    def message_id(self) -> str:
        """Return the id of the message or call that is being run."""
        return self.claim.message

    @property
    def hash_tag(self) -> str:
        """Return the record's hash tag with its braces. Keys that contain it are in the same slot of a cluster."""
        record = once_keys(self.claim.record.namespace, self.claim.record.key).record
        return record[record.index("{") : record.index("}") + 1]

    def __bool__(self) -> Literal[True]:
        """Return True: the run is the caller's."""
        return True

    def provider_key(self, effect: str) -> str:
        """Return a key for an external provider: the same in every attempt at this effect of this key."""
        return f"{self.key}-{effect}"

    def written(self, result: object) -> tuple[OutcomeKind, str]:
        """Return the kind and text of a result, as they are kept; log a warning if it cannot be kept."""
        kind, body = self._form.written(result)
        if kind == "unkept":
            _log.warning("the result of %s cannot be kept for repeats: %s", self.claim.terms.task, body)
        return kind, body

    def replay_of(self, outcome: OutcomeKept) -> Replay:
        """Return the replay for an outcome of this key that was kept elsewhere."""
        return Replay(self.name, outcome, self._form)

    @property
    def _is_decided(self) -> bool:
        """Return whether an end of the run was sent, even without an answer. The `with` statement then sends none."""
        return self.has_ended or self._releases_asked > 0

    def _unended(self) -> str:
        return (
            f"run under key {self.key} of {self.claim.record.namespace!r} was dropped without an outcome, and lapses: "
            "end it, or use it in a with statement"
        )

    def _finishing(self, kind: OutcomeKind, body: str, effect: StoreEffect | None = None) -> Plan[str]:
        if self.has_ended:
            raise InvalidInput(f"the run under key {self.name!r} has ended already; it has one outcome")
        finishing = self.claim.finishing(self.fencing_token, kind, body)
        renewal = self._renew_at, self._renew_until
        self.note_release_asked()
        try:
            answer = yield from finish_plan(self.claim, finishing, effect, self.release_deadline())
        except (StoreError, InvalidInput) as error:
            if effect is None and isinstance(error, StoreError) and not isinstance(error, WrongKind):
                self._owe(finishing)
            elif isinstance(error, StoreRefused | InvalidInput):  # nothing has changed, and the run goes on
                self._renew_at, self._renew_until = renewal
                self._releases_asked -= 1
            raise
        except RunLost:
            self.has_ended = True
            self._lose()
            raise
        except BaseException:  # the caller was cancelled, and the work is done
            if effect is None:
                self._owe(finishing)
            raise
        self.note_release(Released())
        self.next_text = answer.next_text
        return answer.body

    def _owe(self, finishing: FinishRun) -> None:
        # The work is done, whatever the store answers now. While it cannot write, no other run begins there either.
        claim, clock = self.claim.owing(finishing), self._clock
        owed = LeaseState(claim, Acquired(self.fencing_token, claim.ttl_ms, replay=False), clock.now(), clock)
        owed.owe_release()
        self._owed = owed

    def _note_owed(self, error: SegmentedError) -> bool:
        """Return whether the outcome will be kept later, and log it."""
        if self._owed is None:
            return False
        _log.warning("%s is done, and its outcome is kept when the store can: %s", self.claim.terms.task, error)
        return True

    def _putting_off(self, following: NextAttempt) -> Plan[None]:
        self.note_release_asked()
        operation = self.claim.abandoning(following)
        self.note_release((yield from perform(Within(operation, self.release_deadline()))))

    def _doubting(self) -> Plan[None]:
        self.note_release_asked()
        self.note_release((yield from perform(Within(self.claim.doubting(), self.release_deadline()))))

    def _described(self) -> str:
        return f"of {self.claim.terms.task!r}, token={self.fencing_token}"


class Replay:
    """The answer to a repeat instead of a run: the outcome of the first call. False in a condition.

    Its `with` statement does nothing.
    """

    is_replay: Literal[True] = True

    def __bool__(self) -> Literal[False]:
        """Return False: there is nothing to run."""
        return False

    def __init__(self, key: str, outcome: OutcomeKept, form: OutcomeForm) -> None:
        """Create a replay that reads `outcome` on demand."""
        self.key = key
        self.message_id = outcome.message
        self.age = outcome.age_ms / 1000
        """Return the seconds since the first call ended."""
        self._outcome = outcome
        self._form = form

    @property
    def result(self) -> Any:  # noqa: ANN401  # any result of the first call
        """Return the kept result. Raises FailedBefore for a failure, and ResultUnkept if no result was kept."""
        return self._form.read(self.key, self._outcome)

    def __repr__(self) -> str:
        """Return the message and the age of the outcome, never the result."""
        return f"<Replay of {self.message_id!r}, {self.age:.3f} s old>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...


EndT = TypeVar("EndT")


class AsyncRun(RunState, AsyncHeldLease):
    """A run, for asyncio. At the end of its `with` statement it is finished, or abandoned if the body failed.

    By the store's clock at most one run of a key has a valid lease. A body that sleeps past its lease is not stopped:
    another run overtakes it and its outcome is not kept, but its effects outside the store remain.
    """

    def __init__(self, store: AsyncStore, claim: RunClaim, begun: Begun, form: OutcomeForm) -> None:
        """Create a run that holds `claim` and renews it."""
        answer, asked_at = begun
        self.fencing_token = answer.fencing_token
        self._form = form
        acquired = Acquired(answer.fencing_token, answer.ttl_ms, answer.replay)
        super().__init__(store, claim, RENEWAL, acquired, asked_at)

    async def finish(self, result: object = None) -> None:
        """Keep the result for repeats, and end the run. Raises RunLost if the run has another holder now."""
        await self._finish(*self.written(result))

    async def finish_or_owe(self, result: object) -> None:
        """Do the same; if the store cannot keep the result now, the keeper repeats it until the store can."""
        try:
            await self.finish(result)
        except StoreError as error:
            if not self._note_owed(error):
                raise

    async def finish_with(self, effect: StoreEffect) -> Any:  # noqa: ANN401  # any return value of the effect
        """Perform an effect in the store and keep its result in one step. Returns the result."""
        return json.loads(await self._finish("effect", "", effect))

    async def finish_in(self, transaction: Any, result: object = None) -> None:  # noqa: ANN401  # a session or connection
        """Mark the key as done in your own transaction, forever: its row and your rows are one commit.

        `transaction` is a session or connection of SQLAlchemy; for threads also Django's connection, or psycopg's. Call
        it before your own statements. Needs the tables of `OnceTable`. The run goes on: finish it after the commit, or
        let its `with` statement or the middleware do it. Raises AlreadyDone with the stored `result` if the key was
        done before, though Redis has forgotten it: roll back.
        """
        table = import_module("segmented.dedup.sql").OnceTable()  # SQLAlchemy is optional, and the table knows runs
        await transaction.run_sync(table.finish_in, self, result)  # asyncio only
        # threads: table.finish_in(transaction, self, result)

    async def fail(self, error: BaseException) -> None:
        """Keep a failure for repeats, and end the run."""
        await self._finish("error", failure_written(error))

    async def abandon(self) -> None:
        """End the run without an outcome: the next call with the key runs."""
        await self.release()

    async def doubt(self) -> None:
        """End the run in the unknown state. Nobody runs the key again until it is settled, or freed by an operator."""
        await self._ended(self._doubting())

    async def put_off(self, following: NextAttempt) -> None:
        """End the run; its message keeps its holds until its next attempt arrives."""
        await self._ended(self._putting_off(following))

    async def _finish(self, kind: OutcomeKind, body: str, effect: StoreEffect | None = None) -> str:
        return await self._ended(self._finishing(kind, body, effect))

    async def _ended(self, plan: Plan[EndT]) -> EndT:
        self._require_own_process()
        try:
            return await run_async(plan, self._store)
        finally:
            keeper = async_keeper(self._store)
            if self._owed is not None and len(keeper) < OWED_MAX:
                keeper.watch(self._owed, self._store)
            if self._is_decided:
                keeper.discard(self)
            else:
                self._watch()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Finish the run with None if it has not ended; after an error, keep it, abandon, or doubt, as configured."""
        if self._is_decided:
            return
        try:
            if error is None:
                await self.finish()
            elif isinstance(error, Exception) and self.claim.terms.keep_failures_ms:
                await self.fail(error)
            elif self.claim.terms.on_lapse == "unknown" and not isinstance(error, NeverAwaited):
                await self.doubt()
            else:
                await self.abandon()
        except SegmentedError as failure:
            if error is None:
                raise
            error.add_note(f"and afterwards: {failure}")


async def async_begun(
    store: AsyncStore, claim: RunClaim, seen: str, timeout: Duration | None, form: OutcomeForm
) -> AsyncRun | Replay:
    """Begin a run, or return the replay of the run that has ended; `seen` is the fingerprint of the payload.

    Waits up to `timeout` seconds for a call in flight. Raises the errors of `begin_plan`.
    """
    found = await run_async(begin_plan(claim, claim.beginning(seen), checked_timeout(timeout)), store)
    if isinstance(found, OutcomeKept):
        return Replay(claim.name, found, form)
    return AsyncRun(store, claim, found, form)


# --- For threads: written by `make sync` from the classes above. ---


class Run(RunState, HeldLease):
    """A run, for threads. At the end of its `with` statement it is finished, or abandoned if the body failed.

    By the store's clock at most one run of a key has a valid lease. A body that sleeps past its lease is not stopped:
    another run overtakes it and its outcome is not kept, but its effects outside the store remain.
    """

    def __init__(self, store: Store, claim: RunClaim, begun: Begun, form: OutcomeForm) -> None:
        """Create a run that holds `claim` and renews it."""
        answer, asked_at = begun
        self.fencing_token = answer.fencing_token
        self._form = form
        acquired = Acquired(answer.fencing_token, answer.ttl_ms, answer.replay)
        super().__init__(store, claim, RENEWAL, acquired, asked_at)

    def finish(self, result: object = None) -> None:
        """Keep the result for repeats, and end the run. Raises RunLost if the run has another holder now."""
        self._finish(*self.written(result))

    def finish_or_owe(self, result: object) -> None:
        """Do the same; if the store cannot keep the result now, the keeper repeats it until the store can."""
        try:
            self.finish(result)
        except StoreError as error:
            if not self._note_owed(error):
                raise

    def finish_with(self, effect: StoreEffect) -> Any:  # noqa: ANN401  # any return value of the effect
        """Perform an effect in the store and keep its result in one step. Returns the result."""
        return json.loads(self._finish("effect", "", effect))

    def finish_in(self, transaction: Any, result: object = None) -> None:  # noqa: ANN401  # a session or connection
        """Mark the key as done in your own transaction, forever: its row and your rows are one commit.

        `transaction` is a session or connection of SQLAlchemy; for threads also Django's connection, or psycopg's. Call
        it before your own statements. Needs the tables of `OnceTable`. The run goes on: finish it after the commit, or
        let its `with` statement or the middleware do it. Raises AlreadyDone with the stored `result` if the key was
        done before, though Redis has forgotten it: roll back.
        """
        table = import_module("segmented.dedup.sql").OnceTable()  # SQLAlchemy is optional, and the table knows runs
        table.finish_in(transaction, self, result)

    def fail(self, error: BaseException) -> None:
        """Keep a failure for repeats, and end the run."""
        self._finish("error", failure_written(error))

    def abandon(self) -> None:
        """End the run without an outcome: the next call with the key runs."""
        self.release()

    def doubt(self) -> None:
        """End the run in the unknown state. Nobody runs the key again until it is settled, or freed by an operator."""
        self._ended(self._doubting())

    def put_off(self, following: NextAttempt) -> None:
        """End the run; its message keeps its holds until its next attempt arrives."""
        self._ended(self._putting_off(following))

    def _finish(self, kind: OutcomeKind, body: str, effect: StoreEffect | None = None) -> str:
        return self._ended(self._finishing(kind, body, effect))

    def _ended(self, plan: Plan[EndT]) -> EndT:
        self._require_own_process()
        try:
            return run_sync(plan, self._store)
        finally:
            keeper = thread_keeper(self._store)
            if self._owed is not None and len(keeper) < OWED_MAX:
                keeper.watch(self._owed, self._store)
            if self._is_decided:
                keeper.discard(self)
            else:
                self._watch()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Finish the run with None if it has not ended; after an error, keep it, abandon, or doubt, as configured."""
        if self._is_decided:
            return
        try:
            if error is None:
                self.finish()
            elif isinstance(error, Exception) and self.claim.terms.keep_failures_ms:
                self.fail(error)
            elif self.claim.terms.on_lapse == "unknown" and not isinstance(error, NeverAwaited):
                self.doubt()
            else:
                self.abandon()
        except SegmentedError as failure:
            if error is None:
                raise
            error.add_note(f"and afterwards: {failure}")


def begun(store: Store, claim: RunClaim, seen: str, timeout: Duration | None, form: OutcomeForm) -> Run | Replay:
    """Begin a run, or return the replay of the run that has ended; `seen` is the fingerprint of the payload.

    Waits up to `timeout` seconds for a call in flight. Raises the errors of `begin_plan`.
    """
    found = run_sync(begin_plan(claim, claim.beginning(seen), checked_timeout(timeout)), store)
    if isinstance(found, OutcomeKept):
        return Replay(claim.name, found, form)
    return Run(store, claim, found, form)
