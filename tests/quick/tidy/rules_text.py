"""Rules about any text of the repository, each a pure function of the text.

The words that are looked for are put together here from halves, since this file is looked at too.
"""

import re
from collections.abc import Iterator
from typing import Final

UNFINISHED: Final = re.compile(rf"\b({'TO' + 'DO'}|{'FIX' + 'ME'}|{'XX' + 'X'})\b")
FOLDERS: Final = "|".join(["wo" + "rk", "tm" + "p", "ro" + "ot", "ho" + "me", "Us" + "ers"])
MACHINE_PATH: Final = re.compile(rf"(?<![\w.~*}}\])/-])/({FOLDERS})/\w")
HIDDEN: Final = re.compile(r"<!--.*?-->")
REASON: Final = re.compile(r"#\s*\w+\W+\w+")
EXCEPTIONS: Final = re.compile(r'^("[^"]+"|ignore|filterwarnings|module) = \[')
BANNED: Final = (
    ("a" + "new", "again"),
    ("for e" + "ver", "forever"),
    ("both col" + "ours", "sync and async"),
    ("so many at " + "most", "a maximum number"),
    ("may be said " + "again", "repeatable"),
)
"""Turns that read as translated, and what to write: users meet these texts."""
BEGIN: Final = r"(?:\A|\n\s*\n|\n\s*(?:[-*]|\d+\.)\s+|[.:!]\s+)"
TURNS: Final = (
    (r"\b(?:is|are|was|were|be|been)\s+told\b", "is notified, gets, reports"),
    (r"\bwhoever\b", "the caller, the holder, a process that"),
    (r"\bso\s+many\b", "that many, how many"),
    (r"\b(?:for|after)\s+so\s+long\b", "for that long"),
    (r"\bas\s+(?:it\s+was|they\s+were)\b", "unchanged"),
    (r"\bas\s+ever\b", "as usual"),
    (r"\bst(?:ands?|ood)\s+still\b", "hangs, is paused"),
    (r"\boversle(?:eps?|pt)\b", "sleeps past its lease"),
    (r"\blast\s+word\b", "final say"),
    (r"\bthe\s+whole\s+of\b", "all of"),
    (r"\bbears?\s+no\b", "tolerates no"),
    (r"[;,]\s+else\b", "otherwise, in a sentence of its own"),
    (BEGIN + r"(?:Who|What)\s[^.:?!|]*\b(?:is|are|was|were|has|have|does|goes|stays)\b[^.:?!|]*\.", "the actor first"),
    (BEGIN + r"(?:Counted|Told|Measured|Printed|Tested|Checked)\s+(?:is|are|was|were)\b", "the usual word order"),
)
"""Turns of whole sentences on pages, as patterns, and what to write."""
MESSAGE_TURNS: Final = (
    (r"(?<!there )\b(?:is|are) no (?!longer\b|more\b)", "is not a"),
    (r"\b(?:is|are|was|were|be|not) told\b", "is notified, is reported"),
    (r"\bare the most\b", "the maximum is"),
    (r"\bwhere nobody can be asked\b", "without a terminal"),
    (r"\b(?:is|are) to (?:know|decide)\b", "decides, or leave it out"),
    (r"\bthere is no such\b", "does not exist, or unknown"),
    (r"\bcannot be had\b", "cannot be combined"),
    (r"\blast words\b", "last output"),
    (r"\bput right\b", "corrected"),
    (r"\bwhoever\b", "the caller, the holder, a process that"),
    (r"\bso many\b", "that many, how many"),
)
"""Turns of messages that a program prints, as patterns, and what to write."""
NOT_PROSE: Final = re.compile(r"^ *```.*?^ *```|<!--.*?-->|`[^`]*`|(?<=\])\([^)]*\)", re.MULTILINE | re.DOTALL)
UNRELEASED: Final = re.compile(r"^## \[?Unreleased\]?", re.MULTILINE)


def finished(text: str) -> Iterator[tuple[int, str]]:
    """What is left to do is an issue, not a comment."""
    for number, line in _lines(text):
        for found in UNFINISHED.findall(line):
            yield number, f"{found}: write an issue, or do it"


def no_machine_path(text: str) -> Iterator[tuple[int, str]]:
    """A path that exists on one machine only."""
    for number, line in _lines(text):
        for found in MACHINE_PATH.finditer(line):
            yield number, f"{found.group()}...: a path of one machine"


def plain_english(text: str) -> Iterator[tuple[int, str]]:
    """The usual word instead of a turn that reads as translated; names of tests in comments are left alone."""
    for number, line in _lines(text):
        for turn, plain in BANNED:
            if re.search(rf"\b{turn}\b", HIDDEN.sub("", line), re.IGNORECASE):
                yield number, f"{turn!r}: write {plain!r}"


def plain_prose(page: str) -> Iterator[tuple[int, str]]:
    """The actor first, then the verb, in the field's usual words; code and comments of the page are left alone."""
    prose = NOT_PROSE.sub(lambda found: "code" + "\n" * found.group().count("\n"), page)
    for turn, plain in TURNS:
        for found in re.finditer(turn, prose, re.IGNORECASE if turn.startswith(r"\b") else 0):
            words = " ".join(found.group().split()).lstrip("-*.:! ")
            line = prose.count("\n", 0, found.start() + len(found.group()) - len(found.group().lstrip(".:! \n"))) + 1
            yield line, f"{words[:40]!r}: write {plain!r}"


def exceptions_have_reasons(text: str) -> Iterator[tuple[int, str]]:
    """In pyproject.toml every rule that is ignored and every module without types has its reason beside it."""
    inside = False
    for number, line in _lines(text):
        opens = EXCEPTIONS.match(line) is not None
        inside = inside or opens
        entry = line.partition("[")[2] if opens else line
        if inside and '"' in entry and '"error"' not in entry and not REASON.search(entry):
            yield number, f"{line.strip()} has no reason beside it"
        if inside and entry.partition("#")[0].rstrip().endswith("]"):
            inside = False


def has_unreleased_part(text: str) -> Iterator[tuple[int, str]]:
    """What the next release changes is written down while it is made."""
    if not UNRELEASED.search(text):
        yield 1, "no part `## [Unreleased]`"


def _lines(text: str) -> Iterator[tuple[int, str]]:
    return enumerate(text.splitlines(), start=1)
