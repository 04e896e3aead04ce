"""The checks of a server before a store's first operation on it: those of `from_url`, for any client.

They run on the store's own connection, in the round trip that also reads the server's dialect. So they take no extra
time, keep to the operation's deadline, and do not use the user's client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from redis.exceptions import NoPermissionError, ResponseError

from segmented.errors import InvalidInput
from segmented.protocol.wire import Send, text
from segmented.stores.redis.addresses import Deployment
from segmented.stores.redis.edge import check_server, probing_scripts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.protocol.dialect import Command, Reply
    from segmented.protocol.wire import Exchange

INFO: Final[Command] = ("INFO",)


class ServerCheck:
    """The checks of one server."""

    def __init__(self, where: str, deployment: Deployment = Deployment.SINGLE) -> None:
        """Create the checks; `where` names the server in errors."""
        self._where = where
        self._deployment = deployment
        with probing_scripts(where) as commands:
            self.commands: Sequence[Command] = (INFO, *commands)

    def read(self, replies: Sequence[Reply]) -> None:
        """Read the replies to `commands`. Raises InvalidInput for a server that could lose locks or stock."""
        said, *probed = replies
        if isinstance(said, NoPermissionError):
            message = f"the account of {self._where} may not run INFO, which is needed to check the server: {said}"
            raise InvalidInput(message)
        if isinstance(said, ResponseError):
            raise said
        found = dict(line.partition(":")[::2] for line in text(said).splitlines() if not line.startswith("#"))
        if self._deployment is not Deployment.SINGLE:  # there the role may change, and the links follow it
            found.pop("role", None)
        check_server(self._where, found, is_cluster=self._deployment is Deployment.CLUSTER)
        with probing_scripts(self._where):
            for reply in probed:
                if isinstance(reply, ResponseError):
                    raise reply


def pinging(*_: object) -> Exchange[None]:
    """Ask only whether the server answers."""
    yield Send((("PING",),))
