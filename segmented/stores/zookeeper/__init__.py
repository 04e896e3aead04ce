"""ZooKeeper through kazoo, which is imported when the first session is asked for, and not before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented.errors import InvalidInput
from segmented.imports import needs

if TYPE_CHECKING:
    from segmented.stores.zookeeper.session import ZooKeeperSession


def session_of(client: object) -> ZooKeeperSession:
    """Return what this process knows of a kazoo client's session; all locks of one client share it.

    Raises InvalidInput for anything but a KazooClient, or when kazoo is not installed.
    """
    try:
        from segmented.stores.zookeeper import session  # noqa: PLC0415  # kazoo is an extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "kazoo":
            raise
        message = needs("a lock in ZooKeeper", "kazoo")
        raise InvalidInput(message) from error
    return session.session_of(client)
