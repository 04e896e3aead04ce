"""ZooKeeper through kazoo, which is imported when the first session is requested."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented.errors import InvalidInput
from segmented.imports import needs

if TYPE_CHECKING:
    from segmented.stores.zookeeper.client import ZooKeeperSession


def session_of(client: object) -> ZooKeeperSession:
    """Return this process's session object for a kazoo client; all locks of one client share it.

    Raises InvalidInput for anything but a KazooClient, or if kazoo is not installed.
    """
    try:
        from segmented.stores.zookeeper import client as sessions  # noqa: PLC0415  # kazoo is an extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "kazoo":
            raise
        raise InvalidInput(needs("a lock in ZooKeeper", "kazoo")) from error
    return sessions.session_of(client)
