"""An embedded Valkey: the store of a first run and of every test."""

from __future__ import annotations

import contextlib
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Self

from segmented.errors import InvalidInput
from segmented.servers.embedded import Command, EmbeddedServer, Stops, Supervised, valkey_program
from segmented.servers.folders import Claim, private_folder

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

SOCKET_NAME: Final = "valkey.sock"
CONFIG_NAME: Final = "valkey.conf"
PROBE_SECONDS: Final = 1.0
CLIENTS_MAX: Final = 4_096
STOPS: Final = Stops(((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)))


class ValkeyServer(EmbeddedServer):
    """Valkey on a socket, without TCP and without eviction; it keeps no data unless a data folder is given."""

    name: ClassVar[str] = "Valkey"

    @classmethod
    def start(cls, data: str | os.PathLike[str] | None = None, *, config: Mapping[str, str] | None = None) -> Self:
        """Start a server; with `data` it keeps its keys in `data`/valkey (a crash loses at most the last second).

        `config` has more directives, as in the configuration file; they override the defaults. Raises InvalidInput if
        the server cannot start: the package is missing, a directive is wrong, or the data is in use.
        """
        program = valkey_program()
        folder = private_folder()
        claim = None if data is None else Claim.take(Path(data).absolute() / "valkey")
        with contextlib.ExitStack() as stack:
            if claim is not None:
                stack.callback(claim.hand_over)
            kept_fds = () if claim is None else (claim.fd,)
            supervised = stack.enter_context(Supervised(folder, stops=STOPS, kept_fds=kept_fds))
            kept = None if claim is None else claim.folder
            (folder / CONFIG_NAME).write_text(configuration(folder, kept=kept, extra=config or {}))
            path = folder / SOCKET_NAME
            return cls(
                supervised,
                Command((str(program), str(folder / CONFIG_NAME))),
                url=f"unix://{path}?db=0",
                socket_path=path,
                is_ready=lambda: answers(path, (config or {}).get("requirepass")),
            )


def configuration(folder: Path, *, kept: Path | None, extra: Mapping[str, str]) -> str:
    """Return the configuration file; a later directive wins over an earlier one."""
    directives = {
        "port": "0",
        "unixsocket": quoted(folder / SOCKET_NAME),
        "unixsocketperm": "700",
        "dir": quoted(kept or folder),
        "databases": "16",
        "maxclients": str(CLIENTS_MAX),
        "maxmemory-policy": "noeviction",
        "save": '""',
        "appendonly": "no" if kept is None else "yes",
        "appendfsync": "everysec",
        **extra,
    }
    for name, value in directives.items():
        if not name or len((name + value).splitlines()) != 1:
            raise InvalidInput(f"Valkey's directive {name!r} with value {value!r} is not one line")
    return "".join(f"{name} {value}\n" for name, value in directives.items())


def quoted(path: Path) -> str:
    """Return the path in the quoting of the configuration file."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def answers(path: Path, password: str | None = None) -> bool:
    """Return whether a server answers at this socket, even if only to ask for a password; not while it loads data.

    A server that has a password says that it loads data only to a client that gives it.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PROBE_SECONDS)
        try:
            connection.connect(str(path))
            if password is not None:
                given = password.encode()
                connection.sendall(b"*2\r\n$4\r\nAUTH\r\n$%d\r\n%b\r\n" % (len(given), given))
            connection.sendall(b"PING\r\n")
            with connection.makefile("rb") as replies:
                lines = [replies.readline() for _ in range(1 if password is None else 2)]
            return lines[-1].startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False
