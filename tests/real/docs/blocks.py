"""The code blocks of a page, what is expected of each, and what its author has marked."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FENCE: Final = re.compile(
    r"(?:^(?P<pad> *)<!-- (?P<mark>not run: [^\n]+|background|exits \d+) -->\n(?:\1\n)*)?"
    r"^(?P<indent> *)```(?P<kind>\w*)\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
INDENTED: Final = re.compile(r"(?:\A|\n)\n {4}(?! *[-*\d])\S[^\n]*")
FILE: Final = re.compile(r"\A(?:#|--) (?P<name>[\w./-]+\.\w+)\n")
PROMPT: Final = "$ "
MORE: Final = "> "
DATA: Final = ("toml", "yaml", "json")
FILED: Final = (*DATA, "lua")


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a console block, and the lines printed below it."""

    line: str
    printed: str


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block; `line` is the page's line of its first line of code."""

    kind: str
    code: str
    line: int
    mark: str
    printed: str | None = None
    """What the text block behind a Python block shows."""

    @property
    def file(self) -> str | None:
        """The name in the block's first line, under which a reader saves it: `# shop.py`."""
        found = FILE.match(self.code)
        return found["name"] if found else None

    @property
    def is_code(self) -> bool:
        """Return whether the block is code, and not the output of code or a quotation."""
        return self.kind != "text"

    @property
    def why_not(self) -> str | None:
        """The reason why the block does not run, if its author gives one."""
        return self.mark.removeprefix("not run: ") if self.mark.startswith("not run: ") else None

    @property
    def exit_code(self) -> int:
        """The exit code of the block's last command."""
        return int(self.mark.removeprefix("exits ")) if self.mark.startswith("exits ") else 0

    @property
    def commands(self) -> list[Command]:
        """The commands of a console block, each with what is printed below it."""
        found: list[Command] = []
        for line in self.code.splitlines():
            if line.startswith(PROMPT):
                found.append(Command(line.removeprefix(PROMPT), ""))
            elif found and line.startswith(MORE) and not found[-1].printed:
                found[-1] = Command(f"{found[-1].line}\n{line.removeprefix(MORE)}", "")
            elif found and not found[-1].printed and found[-1].line.endswith("\\"):
                found[-1] = Command(f"{found[-1].line}\n{line}", "")
            elif found:
                found[-1] = Command(found[-1].line, f"{found[-1].printed}{line}\n")
            else:
                raise ValueError(f"line {self.line}: a console block begins with '{PROMPT}'")
        return found


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page, in order; a text block right behind a Python block is what that prints."""
    return parse(page.read_text(encoding="utf-8"))


def parse(text: str) -> list[Block]:
    """Return the blocks of a page's text."""
    found: list[Block] = []
    end = 0
    for match in FENCE.finditer(text):
        code = re.sub(f"^{match['indent']}", "", match["code"], flags=re.MULTILINE)
        follows = found and found[-1].kind == "python" and not text[end : match.start()].strip()
        if match["kind"] == "text" and follows:
            before = found.pop()
            found.append(Block(before.kind, before.code, before.line, before.mark, code))
        else:
            line = text.count("\n", 0, match.start("code")) + 1
            found.append(Block(match["kind"], code, line, match["mark"] or ""))
        end = match.end()
    return found


def unfenced(text: str) -> list[str]:
    """Return the blocks that are indented only, which nothing runs."""
    return [block.strip() for block in INDENTED.findall(FENCE.sub("", text))]
