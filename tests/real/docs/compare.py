"""Is what a page prints what its command printed?

Numbers are compared as numbers of any value, and runs of blanks as one blank. `...` stands for anything, and a line of
nothing else for any lines.
"""

import re
from typing import Final

ANSI: Final = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
NUMBER: Final = re.compile(r"\d(?:[\d,.]*\d)?")
BLANKS: Final = re.compile(r"[ \t]+")
ANYTHING: Final = "..."


def missing(expected: str, printed: str, *, exactly: bool = False) -> str | None:
    """Return the first expected line that is not printed, in the order of the page; None if all are.

    With `exactly` the lines have to follow each other, and nothing may come before or after them.
    """
    left = [normal(line) for line in ANSI.sub("", printed).replace("\r", "\n").splitlines() if line.strip()]
    may_skip = not exactly
    for line in filter(str.strip, expected.splitlines()):
        if line.strip() == ANYTHING:
            may_skip = True
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in normal(line).split(ANYTHING)))
        places = [place for place, one in enumerate(left) if pattern.fullmatch(one)]
        if not places or (places[0] and not may_skip):
            return line
        del left[: places[0] + 1]
        may_skip = not exactly
    return left[0] if left and not may_skip else None


def normal(line: str) -> str:
    """Return a line without what differs from run to run."""
    return BLANKS.sub(" ", NUMBER.sub("N", line)).strip()
