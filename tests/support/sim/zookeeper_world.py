"""ZooKeeper in memory, under the simulator: sessions, lines of nodes, watches; connections that go, sessions that end.

It stands for the server and for `stores.zookeeper`: what an attempt could not delete is deleted in the background, as
the caretaker does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from segmented.errors import StoreUnavailable
from segmented.plans import Plan, perform
from segmented.protocol.zookeeper import (
    Contender,
    CreateContender,
    DeleteContender,
    Entered,
    LearnSessionTime,
    ListContenders,
    LookAtSession,
    MakeParent,
    ReadContender,
    SessionSeen,
    Unanswered,
    WatchContender,
)
from tests.support.sim.simulator import Simulation, Sleep

if TYPE_CHECKING:
    from segmented.protocol import Effect, Operation
    from tests.support.sim.simulator import Actor

SESSION_SECONDS = 1.0
FATES = ("undertaker", "trouble")
"""Names of what is no process, and cannot be killed: that sessions end, and that connections come back."""


@dataclass(slots=True)
class Session:
    """One process's session, as the process knows it and as the server does."""

    era: int = 0
    link: int = 1
    is_connected: bool = True


@dataclass(frozen=True, slots=True)
class Node:
    """One contender, with the session that owns it."""

    contender: Contender
    zxid: int
    process: str
    era: int


@dataclass(slots=True)
class ZooKeeperWorld(Simulation):
    """Plans of several processes, each with one session."""

    sessions: dict[str, Session] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    has_parent: bool = False
    created: int = 0
    watches: list[tuple[str, str, str]] = field(default_factory=list)
    """Path, process, channel."""

    def session(self, process: str) -> Session:
        return self.sessions.setdefault(process, Session())

    def holder(self) -> Node | None:
        """Who holds the lock, as the server sees it."""
        return self.nodes[0] if self.nodes else None

    # --- trouble ---

    def disconnect(self, process: str) -> None:
        """Cut a process off; its watches go, its session stays."""
        self.session(process).is_connected = False
        self.watches = [watch for watch in self.watches if watch[1] != process]
        self._wake_all(process)

    def reconnect(self, process: str) -> None:
        """Let a process reach the server again."""
        session = self.session(process)
        session.is_connected, session.link = True, session.link + 1
        self._wake_all(process)

    def end_session(self, process: str) -> None:
        """End the session: the server deletes its nodes, and the process learns of it."""
        session = self.session(process)
        for node in [node for node in self.nodes if (node.process, node.era) == (process, session.era)]:
            self._delete(node)
        session.era += 1
        self._wake_all(process)

    def clean(self, holder_id: str) -> None:
        """Delete what a holder left in line, as the caretaker does."""
        for node in [node for node in self.nodes if node.contender.holder_id == holder_id]:
            self._delete(node)

    def kill(self, process: str) -> None:
        if process.startswith(FATES):
            return
        super(ZooKeeperWorld, self).kill(process)
        self.start(f"undertaker of {process}", self._buried(process))

    def _buried(self, process: str) -> Plan[None]:
        yield from perform(Sleep(SESSION_SECONDS))
        self.end_session(process)

    # --- operations ---

    def _execute(self, actor: Actor, operation: Operation[Any]) -> None:
        try:
            actor.reply = self._answer(actor.process, operation)
        except StoreUnavailable as error:
            actor.failure = error
            return
        is_local = isinstance(operation, LookAtSession | LearnSessionTime)
        if not is_local and self._is_lost(self.lost_replies):
            actor.reply, actor.failure = None, Unanswered("the reply was lost")

    def _answer(self, process: str, operation: Any) -> Any:  # noqa: ANN401  # by operation
        session = self.session(process)
        if operation.era is not None and operation.era != session.era:
            message = "the session is over"
            raise StoreUnavailable(message)
        if isinstance(operation, LookAtSession):
            return SessionSeen(session.era, session.link, session.is_connected, is_fresh=session.is_connected)
        if not session.is_connected:
            message = "there is no connection"
            raise Unanswered(message)
        match operation:
            case MakeParent():
                self.has_parent = True
            case CreateContender(parent=parent, holder_id=holder_id):
                return self._create(process, parent, holder_id) if self.has_parent else None
            case ListContenders():
                return tuple(node.contender for node in self.nodes)
            case ReadContender() | WatchContender() | DeleteContender():
                return self._answer_about_one(process, operation)
        return None

    def _answer_about_one(self, process: str, operation: ReadContender | WatchContender | DeleteContender) -> Any:  # noqa: ANN401  # as above
        found = self._find(operation.contender)
        match operation:
            case ReadContender(contender=contender):
                is_ours = found is not None and (found.process, found.era) == (process, operation.era)
                return Entered(contender, found.zxid) if found is not None and is_ours else None
            case WatchContender(contender=contender, channel=channel) if found is not None:
                self.watches.append((contender.path, process, channel))
            case DeleteContender() if found is not None:
                self._delete(found)
        return found is not None

    def _create(self, process: str, parent: str, holder_id: str) -> Entered:
        contender = Contender(holder_id, self.created, f"{parent}/{holder_id}-{self.created:010d}")
        self.created += 1
        self.nodes.append(Node(contender, 1000 + self.created, process, self.session(process).era))
        return Entered(contender, 1000 + self.created)

    def _find(self, contender: Contender) -> Node | None:
        return next((node for node in self.nodes if node.contender == contender), None)

    def _delete(self, node: Node) -> None:
        self.nodes.remove(node)
        fired = [watch for watch in self.watches if watch[0] == node.contender.path]
        self.watches = [watch for watch in self.watches if watch not in fired]
        for _, process, channel in fired:
            self._line(process, channel).signal()

    def _wake_all(self, process: str) -> None:
        for (owner, _), line in list(self._lines.items()):
            if owner == process:
                line.signal()


@dataclass(frozen=True, slots=True)
class SessionFaults:
    """What happens to one process while it waits and works."""

    world: ZooKeeperWorld
    process: str

    def connection_goes_and_comes(self, *, after: float, seconds: float) -> Plan[None]:
        """Cut the process off for less than its session lasts."""
        yield from self._slept(after)
        self.world.disconnect(self.process)
        yield from self._slept(seconds)
        self.world.reconnect(self.process)

    def session_ends(self, *, after: float) -> Plan[None]:
        """End the session under a process that lives on."""
        yield from self._slept(after)
        self.world.end_session(self.process)

    def _slept(self, seconds: float) -> Plan[None]:
        nap: Effect[None] = Sleep(seconds)
        yield from perform(nap)
