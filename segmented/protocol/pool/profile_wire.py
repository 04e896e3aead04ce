"""Whether a server can keep to a pool's profile, asked before the pool is opened on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from redis.exceptions import ResponseError

from segmented import protocol as op
from segmented.errors import InvalidInput
from segmented.keys import shard_keys
from segmented.protocol.acknowledging import profile_wait
from segmented.protocol.wire import Call, Codec, Send, plain_call, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from segmented.protocol.wire import Command, Finish, Reply


def _encode(operation: op.CheckProfile) -> Call:
    return plain_call("EXISTS", shard_keys(operation.sku).meta)  # its key decides which server of a cluster is asked


def _decode(_: op.CheckProfile, __: Reply) -> None:
    """Ignore whether the pool is there."""


def _check(operation: op.CheckProfile, _: None) -> Finish:
    """Ask the server for its state, for its configuration, and whether it knows and allows the waiting command."""
    profile = operation.profile
    name, *_rest = profile_wait(profile)
    nothing: Command = (name, 0, 1) if name == "WAIT" else (name, 0, 0, 1)  # returns at once
    commands = (("INFO",), ("CONFIG", "GET", "appendfsync"), nothing)
    said, configured, waited = yield Send(commands)
    if isinstance(said, ResponseError):
        _refuse(
            operation, f"the server's state is unknown, because the account may not run INFO: {said}", "allow +info"
        )
    if isinstance(waited, ResponseError):
        cure = f"allow +{str(name).lower()}, or use Valkey, or Redis 7.2 or newer"
        _refuse(operation, f"the server does not run {name} for this account: {waited}", cure)
    info = dict(line.partition(":")[::2] for line in text(said).splitlines() if not line.startswith("#"))
    if info.get("redis_mode") == "memory":  # the small Redis of a MemoryStore says so
        _refuse(operation, "a memory store has no replicas and no disk", "leave the profile out, or use a RedisStore")
    if profile.kind == "fsync":
        _check_disk(operation, info, configured)
    else:
        _check_replicas(operation, info)


def _check_disk(operation: op.CheckProfile, info: Mapping[str, str], configured: Reply) -> None:
    """Refuse a server that does not sync each change before it answers.

    With `appendfsync everysec` WAITAOF cannot be relied on: Valkey 9.1 acknowledges changes that are not synced yet.
    """
    if info.get("aof_enabled") != "1":
        _refuse(operation, "the server writes no append-only file", "set appendonly yes and appendfsync always")
    if isinstance(configured, ResponseError):  # as on a managed server
        why = "the server writes an append-only file, but how it syncs it is unknown, because it forbids CONFIG"
        _refuse(operation, f"{why}: {configured}", "allow +config|get, or use an order database")
    found = configured.items() if isinstance(configured, dict) else zip(configured[::2], configured[1::2], strict=True)
    fsync = {text(name): text(value) for name, value in found}.get("appendfsync", "unknown")
    if fsync != "always":
        why = f"the server has appendfsync {fsync}, so WAITAOF may count a change that is not on the disk"
        _refuse(operation, why, "set appendfsync always")


def _check_replicas(operation: op.CheckProfile, info: Mapping[str, str]) -> None:
    lines = [value for name, value in info.items() if name.startswith("slave") and "=" in value]
    online = sum("state=online" in line.split(",") for line in lines)
    wanted = operation.profile.replicas
    if online < wanted:
        _refuse(
            operation,
            f"the server has {online} connected replicas of the {wanted} wanted",
            "connect more, or ask for fewer",
        )


def _refuse(operation: op.CheckProfile, why: str, cure: str) -> NoReturn:
    message = f"pool {operation.sku!r} cannot be opened with profile {operation.profile}: {why}; {cure}"
    raise InvalidInput(message)


CODECS: Final = {op.CheckProfile: Codec(_encode, _decode, finish=_check)}
