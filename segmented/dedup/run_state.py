"""The part that a sync and an async run share, and the replay, which answers repeats."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from segmented.dedup.plans import finish_plan
from segmented.errors import InvalidInput, RunLost, StoreError, StoreRefused, WrongKind
from segmented.keys import once_keys
from segmented.locks.lease_state import LeaseState, Renewal
from segmented.models import Acquired, Released
from segmented.plans import Within, perform

if TYPE_CHECKING:
    from segmented.dedup.outcomes import OutcomeForm
    from segmented.dedup.plans import StoreEffect
    from segmented.dedup.terms import NextAttempt, RunClaim
    from segmented.errors import SegmentedError
    from segmented.models.dedup import OutcomeKept, OutcomeKind
    from segmented.plans import Plan
    from segmented.protocol import FinishRun

_log: Final = logging.getLogger("segmented.dedup")
RENEW_MAX: Final = 7 * 24 * 3600.0
"""Maximum seconds for which a run is renewed, so that a hanging body does not hold its key forever."""
RENEWAL: Final = Renewal(is_wanted=True, seconds_max=RENEW_MAX)


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
            message = f"the run under key {self.name!r} has ended already; it has one outcome"
            raise InvalidInput(message)
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

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Do nothing."""
