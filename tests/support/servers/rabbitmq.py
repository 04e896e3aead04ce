"""A private RabbitMQ, on loopback ports and with its files in a folder, that a test may kill."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any, Final

from kombu import Connection

from tests.support.contract.parking import wait_until
from tests.support.processes import Logged
from tests.support.servers.nodes import free_ports

BIN: Final = Path("/usr/lib/rabbitmq/bin")
"""Debian's own scripts; those in /usr/sbin change the account."""
START_SECONDS: Final = 120.0
CONFIGURATION: Final = """
listeners.tcp.1 = 127.0.0.1:{port}
log.console = true
log.file = false
vm_memory_high_watermark.absolute = 400MB
disk_free_limit.absolute = 50MB
consumer_timeout = 120000
"""
ERLANG: Final = "+S 1:1 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}"


class RabbitServer:
    """A RabbitMQ of one node, which keeps its queues over `kill` and `start`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        port, distribution, names = free_ports(3)
        (folder / "rabbitmq.conf").write_text(CONFIGURATION.format(port=port))
        self.url = f"amqp://guest:guest@127.0.0.1:{port}//"
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "RABBITMQ_NODENAME": f"test{port}@localhost",
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ERLANG,
            "ERL_EPMD_PORT": str(names),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_RELAXED_COMMAND_CHECK": "1",  # it ends although it still has the name of a node that was killed
        }
        self._process: Logged | None = None

    @staticmethod
    def is_installed() -> bool:
        return (BIN / "rabbitmq-server").exists()

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        words = [str(BIN / "rabbitmq-server")]
        process = Logged(words, self._folder / "said", cwd=self._folder, environment=self._environment)
        self._process = process

        def answers() -> bool:
            assert process.process.poll() is None, process.said()[-2_000:]
            connection: Any = Connection(self.url, connect_timeout=5)
            try:
                connection.connect()
            except tuple(connection.connection_errors):
                return False
            finally:
                connection.release()
            return True

        wait_until(answers, seconds=START_SECONDS)

    def kill(self) -> None:
        """Kill the server."""
        assert self._process is not None
        self._process.signal(signal.SIGKILL)
        self._process.process.wait(START_SECONDS)

    def end(self) -> None:
        """Kill the server, and the process that keeps the names of its kind."""
        if self._process is not None:
            self._process.kill()
        words = ["epmd", "-kill"]
        subprocess.run(words, env=self._environment, check=False, capture_output=True, timeout=START_SECONDS)
