"""Rules about Lua scripts, each a pure function of the text."""

import re
from collections.abc import Iterator
from typing import Final

from tests.quick.tidy.rules_text import plain_english, plain_prose

SCAN: Final = re.compile(r"""['"](KEYS|[HSZ]?SCAN)['"]""", re.IGNORECASE)
KEY_LITERAL: Final = "se" + "g:"
USED: Final = re.compile(r"\b(KEYS|ARGV)\[(\d+)\]")
PART: Final = re.compile(r"^--\s+(?P<part>uses|KEYS|ARGV|answers)\s+(?P<text>.*)")
COMMENT: Final = re.compile(r"^\s*--\s?(.*)|^.*?\s--\s(.*)")
OTHERWISE: Final = re.compile(r""", else (?=["\d]|$)""")
"""The form of contracts: "1" for a replay, else "0"."""
CONTINUED: Final = re.compile(r"^--\s{4,}\S")


def contract(text: str) -> Iterator[tuple[int, str]]:
    """A script opens with its contract: KEYS (or the shared part that lists them), ARGV, and every answer."""
    parts = contract_of(text)
    if "uses" not in parts and "KEYS" not in parts:
        yield 1, "the contract does not say KEYS"
    yield from ((1, f"the contract does not say {part}") for part in ("ARGV", "answers") if part not in parts)
    yield from arguments_are_named(text)


def arguments_are_named(text: str) -> Iterator[tuple[int, str]]:
    """Each KEYS[n] and ARGV[n] that the body uses has its number and name in the contract."""
    parts = contract_of(text)
    for number, line in enumerate(text.splitlines(), start=1):
        for table, index in USED.findall(line.partition("--")[0]):
            if not re.search(rf"\b{index} \w", parts.get(table, "")):
                yield number, f"{table}[{index}] is not in the contract"


def plain_comments(text: str) -> Iterator[tuple[int, str]]:
    """Comments use the usual words and begin with the actor."""
    found = [COMMENT.match(line) for line in text.splitlines()]
    comments = "\n".join(OTHERWISE.sub(" or ", (one[1] or one[2] or "") if one else "") for one in found)
    yield from plain_english(comments)
    yield from plain_prose(comments)


def no_scan(text: str) -> Iterator[tuple[int, str]]:
    """A script never looks through all keys."""
    for number, line in enumerate(text.splitlines(), start=1):
        for found in SCAN.findall(line.partition("--")[0]):
            yield number, f"{found} looks through everything"


def no_key_literal(text: str) -> Iterator[tuple[int, str]]:
    """Keys are built in segmented/keys.py and handed in."""
    for number, line in enumerate(text.splitlines(), start=1):
        if KEY_LITERAL in line:
            yield number, f"{KEY_LITERAL} builds a key inside a script"


def contract_of(text: str) -> dict[str, str]:
    """Return the parts of the comment block at the top, each with the indented lines that continue it."""
    parts: dict[str, str] = {}
    part = ""
    for line in text.splitlines():
        if not line.startswith(("#!", "--")):
            break
        if found := PART.match(line):
            part = found["part"]
            parts[part] = found["text"]
        elif part and CONTINUED.match(line):
            parts[part] += f" {line.lstrip('- ')}"
        else:
            part = ""
    return parts
