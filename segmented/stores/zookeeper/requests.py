"""The kazoo request of each operation and the meaning of its reply, for sync and async."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import KazooException, NoNodeError

from segmented.errors import StoreRefused
from segmented.protocol.zookeeper.operations import (
    ConfirmSession,
    Contender,
    CreateContender,
    DeleteContender,
    Entered,
    ListContenders,
    MakeParent,
    ReadContender,
    Unanswered,
    WatchContender,
)
from segmented.stores.zookeeper.caretaker import CONNECTION_ERRORS
from segmented.stores.zookeeper.paths import contender, contender_prefix, in_order

if TYPE_CHECKING:
    from segmented.protocol import Operation
    from segmented.stores.zookeeper.session import ZooKeeperSession

IF_MISSING = {
    CreateContender: None,
    ListContenders: (),
    ReadContender: None,
    WatchContender: False,
    DeleteContender: False,
}
"""The answer if the node does not exist."""
CONFIRMING = (ConfirmSession, CreateContender, DeleteContender)
"""Operations that the leader itself answers, so they prove that the session is alive."""


def begin(session: ZooKeeperSession, operation: Operation[Any]) -> Any:  # noqa: ANN401  # kazoo's future
    """Send the request."""
    client = session.client
    match operation:
        case ConfirmSession():
            return client.sync_async("/")
        case MakeParent(parent=parent):
            return client.ensure_path_async(parent)
        case CreateContender(parent=parent, holder_id=holder_id):
            prefix = contender_prefix(parent, holder_id)
            return client.create_async(prefix, ephemeral=True, sequence=True, include_data=True)
        case ListContenders(parent=parent):
            return client.get_children_async(parent)
        case ReadContender(contender=found):
            return client.get_async(found.path)
        case WatchContender(contender=found):
            # Read it instead of calling `exists`, which would leave a watch behind on a deleted node.
            return client.get_async(found.path, watch=session.on_event)
        case DeleteContender(contender=found):
            return client.delete_async(found.path)
    message = f"no ZooKeeper request performs {operation!r}"
    raise TypeError(message)


def begin_uninterrupted(session: ZooKeeperSession, operation: Operation[Any]) -> Any:  # noqa: ANN401  # as above
    """Send the request; from the main thread, use another thread, which signals do not interrupt.

    While it sends, kazoo treats every exception as a lost connection, so Ctrl-C would have no effect.
    """
    if threading.current_thread() is not threading.main_thread():
        return begin(session, operation)
    with ThreadPoolExecutor(1, "segmented-zookeeper-send") as pool:
        try:
            sending = pool.submit(begin, session, operation)
        except RuntimeError:  # the interpreter is shutting down and starts no more threads
            return begin(session, operation)
        return sending.result()


def answer(session: ZooKeeperSession, operation: Operation[Any], result: Any) -> Any:  # noqa: ANN401  # by operation
    """Return the answer of a finished request; translate the driver's errors into ours."""
    error = result.exception
    if isinstance(error, NoNodeError) and type(operation) in IF_MISSING:
        return IF_MISSING[type(operation)]
    if isinstance(error, CONNECTION_ERRORS):
        message = f"the connection to ZooKeeper at {session.where} was lost"
        raise Unanswered(message) from error
    if isinstance(error, KazooException):
        message = f"ZooKeeper at {session.where} refused the operation: {str(error) or type(error).__name__}"
        raise StoreRefused(message) from error
    if error is not None:
        raise error
    return _read(session, operation, result.value)


def _read(session: ZooKeeperSession, operation: Operation[Any], value: Any) -> Any:  # noqa: ANN401  # as above
    match operation:
        case CreateContender(parent=parent):
            path, stat = value
            return _entered(contender(parent, path.rpartition("/")[2]), stat)
        case ReadContender(contender=found):
            _, stat = value
            session_id, _ = session.client.client_id or (None, b"")
            return _entered(found, stat) if stat.ephemeralOwner == session_id else None
        case ListContenders(parent=parent):
            return in_order(one for node in value if (one := contender(parent, node)) is not None)
        case WatchContender() | DeleteContender():
            return True
    return None


def _entered(found: Contender | None, stat: Any) -> Entered | None:  # noqa: ANN401  # kazoo's, untyped
    return None if found is None else Entered(found, stat.czxid)
