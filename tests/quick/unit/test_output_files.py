"""The option of a command that names a file to write: - is standard output, by one rule for all commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import typer

from segmented.cli.console import console_beside
from segmented.cli.main import build
from segmented.errors import InvalidInput
from segmented.files import STDOUT, check_apart, check_kept, check_writable, whole_file, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator

READ: Final = frozenset(
    {
        ("bench granularity", "--plan"),
        ("bench granularity", "--strategy"),
        ("bench orders", "--plan"),
    }
)
"""Options with a file that is read."""
READ_AGAIN: Final = frozenset({("pool archive", "--to"), ("torture locks", "--log")})
"""Options with a file that the command itself reads afterwards."""


def test_a_text_for_standard_output_is_printed_and_no_file_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    check_writable(STDOUT, "--json")
    write_whole(STDOUT, "{}\n")
    with whole_file(Path("-"), is_secret=True) as out:
        out.write("line\n")
    assert capsys.readouterr().out == "{}\nline\n"
    assert list(tmp_path.iterdir()) == []


def test_two_options_cannot_both_be_standard_output() -> None:
    with pytest.raises(InvalidInput, match=r"^--json - is the file of --results: name another file$"):
        check_apart({"--results": STDOUT, "--json": STDOUT})


def test_a_file_that_is_read_again_cannot_be_standard_output(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"^--log - is standard output, which cannot be read again: name a file$"):
        check_kept(STDOUT, "--log")
    check_kept(tmp_path / "log", "--log")
    check_kept(None, "--log")


def test_what_a_user_reads_goes_to_standard_error_beside_results_on_standard_output() -> None:
    assert [console_beside(*files).stderr for files in ((), (None, Path("a")), (None, STDOUT))] == [False, False, True]


def options(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:  # noqa: ANN401  # typer's own click
    """Yield each option of a command and of those below it, with the words of its command."""
    yield from ((" ".join(path), one) for one in command.params if one.param_type_name == "option")
    for name, below in getattr(command, "commands", {}).items():
        yield from options(below, (*path, name))


def test_every_option_with_a_file_to_write_says_that_a_dash_is_standard_output() -> None:
    found = {
        (path, option.opts[0]): option.help or ""
        for path, option in options(typer.main.get_command(build()))
        if str(option.metavar).startswith("FILE")
    }
    silent = {place for place, text in found.items() if "- is standard output" not in text}
    assert silent == READ | READ_AGAIN
    assert len(found) > 60
