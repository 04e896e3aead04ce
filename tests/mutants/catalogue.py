"""Reads the mutants: TOML files here, one for each area of the code.

| field | what it says |
| --- | --- |
| `file` | the file that is changed, from the checkout's root |
| `find` | the text that is replaced; it stands there exactly once |
| `becomes` | what takes its place |
| `breaks` | which promise breaks then, in a sentence |
| `tests` | files or tests, as pytest takes them, at least one of which must fail |
| `equivalent` | instead of `tests`: why nobody can see a difference |
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file."""

    area: str
    number: int
    file: str
    find: str
    becomes: str
    breaks: str = ""
    tests: tuple[str, ...] = ()
    equivalent: str = ""

    @property
    def name(self) -> str:
        """Area and number from 1."""
        return f"{self.area}-{self.number}"

    def changed(self, text: str) -> str:
        """Return the file's text with the change. Raises ValueError when it no longer applies."""
        count = text.count(self.find)
        if count != 1 or self.find == self.becomes:
            raise ValueError(f"mutant {self.name} does not apply: {self.file} has its text {count} times")
        return text.replace(self.find, self.becomes)


def mutants() -> list[Mutant]:
    """Return all mutants, by area. Raises TypeError for a field that is unknown or missing."""
    return [
        Mutant(file.stem, number, **(one | {"tests": tuple(one.get("tests", ()))}))
        for file in sorted(HERE.glob("*.toml"))
        for number, one in enumerate(tomllib.loads(file.read_text(encoding="utf-8"))["mutant"], 1)
    ]
