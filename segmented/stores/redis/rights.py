"""The rights of an account: each command of scripts and waiting calls is tried before the first operation.

Redis does not roll back a script: one whose account lacks a right in the middle would leave what it wrote before. The
probe is a script itself, and asks the server by `redis.acl_check_cmd`, which runs nothing and needs no right to ACL. A
server without this function has no such rules, and is not asked.

An account may be limited to the keys of some names. The probe asks with a key of each family, and where the account has
no right to any of them it says nothing: the server then refuses a script by its declared keys, before it begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha1
from typing import Final

from redis.exceptions import ResponseError

from segmented.errors import InvalidInput
from segmented.protocol.wire import Command, Reply, text

SAMPLES: Final = {
    "DEL": "",
    "EXISTS": "",
    "GET": "",
    "HDEL": "f",
    "HEXISTS": "f",
    "HGET": "f",
    "HGETALL": "",
    "HINCRBY": "f 1",
    "HKEYS": "",
    "HLEN": "",
    "HMGET": "f",
    "HSET": "f 1",
    "HSETNX": "f 1",
    "MGET": "",
    "PERSIST": "",
    "PEXPIRE": "1",
    "PEXPIREAT": "1",
    "PTTL": "",
    "SADD": "m",
    "SCARD": "",
    "SET": "1",
    "SISMEMBER": "m",
    "SREM": "m",
    "TYPE": "",
    "XADD": "* f 1",
    "XDEL": "1-1",
    "XLEN": "",
    "XRANGE": "- +",
    "XREVRANGE": "+ -",
    "XTRIM": "MAXLEN 1",
    "ZADD": "1 m",
    "ZCARD": "",
    "ZCOUNT": "0 1",
    "ZMSCORE": "m",
    "ZRANGE": "0 1",
    "ZRANGEBYSCORE": "0 1",
    "ZRANK": "m",
    "ZREM": "m",
    "ZREMRANGEBYSCORE": "0 1",
    "ZSCORE": "m",
}
"""Commands of the scripts, with arguments behind the key: the server's check needs a well-formed command."""
OTHERS: Final = ("TIME", "RENAME {key} {key}", "XINFO STREAM {key}", "PUBLISH {channel} 1", "SUBSCRIBE {channel}")
"""Those whose key, if any, is not their first argument alone. A channel is named as a key is."""
IN_CLUSTER: Final = ("SPUBLISH {channel} 1", "SSUBSCRIBE {channel}", "SUNSUBSCRIBE {channel}")
"""Further commands on a node of a cluster: scripts send messages by them, and processes get messages by them."""
CHANNELS: Final = frozenset(line.split()[0] for line in (*OTHERS, *IN_CLUSTER) if "{channel}" in line)
FAMILIES: Final = ("seg:{segmented}:rights", "seg:lock:{segmented}:rights", "seg:once:{segmented:0}:rights")
PROBE: Final = """#!lua flags=no-writes,allow-stale
local may_call = redis.acl_check_cmd or function() return true end
local lines, mode = ARGV[2], redis.pcall('INFO', 'cluster')
if type(mode) == 'string' and string.find(mode, 'cluster_enabled:1', 1, true) then
  lines = lines .. '\\n' .. ARGV[3]
end
local least = nil
for key in string.gmatch(ARGV[1], '%S+') do
  local missing, is_covered = {}, false
  for line in string.gmatch(lines, '[^\\n]+') do
    local words = {}
    for word in string.gmatch(line, '%S+') do
      words[#words + 1] = (word == '{key}' or word == '{channel}') and key or word
    end
    local is_known, may = pcall(may_call, unpack(words))
    if not (is_known and may) then
      missing[#missing + 1] = words[1]
    elseif string.find(line, '{key}', 1, true) then
      is_covered = true
    end
  end
  if is_covered and (not least or #missing < #least) then
    least = missing
  end
end
return least or {}
"""
"""Returns the commands that the account may not call with a key of the family where it may call the most.

None if it may use no such key. The script also runs when memory is full.
"""
LINES: Final = "\n".join([*(f"{name} {{key}} {rest}".rstrip() for name, rest in SAMPLES.items()), *OTHERS])
_ARGUMENTS: Final[Command] = (0, " ".join(FAMILIES), LINES, "\n".join(IN_CLUSTER))
PROBES: Final[Sequence[Command]] = (
    ("EVAL", PROBE, *_ARGUMENTS),
    ("EVALSHA", sha1(PROBE.encode(), usedforsecurity=False).hexdigest(), *_ARGUMENTS),
)


@contextmanager
def probing_scripts(where: str) -> Iterator[Sequence[Command]]:
    """Yield commands that test whether a server runs our scripts, and turn its refusal into one sentence.

    An account may lack the right to run scripts, and a server's configuration may have renamed the commands.
    """
    try:
        yield PROBES
    except ResponseError as error:
        message = f"the server at {where} runs no scripts for this account, but locks and stock need them: {error}"
        raise InvalidInput(message) from error


def check_rights(where: str, reply: Reply) -> None:
    """Read the reply to a probe. Raises InvalidInput for an account that lacks a right, and names the rule to add."""
    missing = [text(name) for name in reply]
    if not missing:
        return
    channels = " &seg:*" if CHANNELS.intersection(missing) else ""
    rules = " ".join(f"+{name.lower()}" for name in missing) + channels
    named = [f"{name} to the channels of its keys" if name in CHANNELS else name for name in missing]
    raise InvalidInput(
        f"the account of {where} may not {', '.join(named)}, which locks and stock need: "
        f"add the rule with ACL SETUSER <account> {rules}"
    )
