"""The command line as a user meets it: its two streams and its exit code, in a real process where one matters."""

import subprocess
from pathlib import Path

import pytest

from tests.support.command_line import ran as ran_here

pytestmark = pytest.mark.timeout(300)


def here(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command in this process, where it takes a hundredth of what one of its own takes."""
    return ran_here(*words, url=None)


def test_without_a_command_the_help_is_shown() -> None:
    shown, helped = here(), here("--help")
    assert (shown.returncode, shown.stdout) == (0, helped.stdout)
    assert helped.stdout.startswith("Usage: segmented [OPTIONS] COMMAND [ARGS]...\n")


@pytest.mark.parametrize("group", ["pool", "lock", "orders", "dedup", "torture"])
def test_a_group_alone_is_its_help_also_in_a_pipe(group: str) -> None:
    alone = here(group)
    assert (alone.returncode, alone.stderr) == (0, "")
    assert alone.stdout == here(group, "--help").stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["poll"], "there is no command 'poll'; did you mean 'pool'?"),
        (["nonsense"], "there is no command 'nonsense': see segmented --help"),
        (["top"], "there is no command 'top': use segmented watch SKU"),
        (
            ["pool", "rm"],
            (
                "there is no command 'pool rm': use segmented pool close SKU, then segmented pool delete SKU; "
                "segmented pool archive SKU --to FILE keeps a copy"
            ),
        ),
        (["pool", "status"], "there is no command 'pool status': use segmented pool show SKU"),
        (
            ["pool", "repair", "mug", "--database", "x"],
            "there is no command 'pool repair --database': use segmented pool rebuild SKU --database URL --selling",
        ),
        (["lock", "unlock"], "there is no command 'lock unlock': use segmented lock revoke NAME"),
        (["reference"], "there is no command 'reference': see segmented --help"),
        (["pool", "shwo"], "No such command 'shwo'. Did you mean 'show'?"),
        (["pool", "nonsense"], "No such command 'nonsense': see segmented pool --help"),
        (["pool", "export", "mug", "--format", "x"], "Invalid value for '--format': 'x' is not one of 'jsonl', 'csv'."),
        (["pool", "show", "mug", "--jsn", "f"], "No such option: --jsn (Possible options: --json)"),
        (["pool", "show", "mug", "--xyz", "f"], "No such option: --xyz: see segmented pool show --help"),
        (["orders", "prune"], "Missing option '--before': see segmented orders prune --help"),
        (
            ["orders", "prune", "--before", "monday"],
            "Invalid value for '--before': 'monday' does not match the formats 'YYYY-MM-DD', 'YYYY-MM-DDTHH:MM'.",
        ),
    ],
)
def test_a_word_that_is_not_known_is_one_sentence_with_the_nearest(words: list[str], sentence: str) -> None:
    ran = here(*words)
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", f"segmented: {sentence}\n")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "it names no file"),
        (" ", "it names no file"),
        ("{folder}", "the file {folder} is a folder, not a file"),
        ("{folder}/no/file", "the file {folder}/no/file: there is no folder {folder}/no"),
        ("{folder}/" + "x" * 300, "cannot be written: File name too long"),
    ],
)
@pytest.mark.parametrize(
    "words",
    [
        ["pool", "restock", "mug", "5", "--id", "r", "--json"],
        ["pool", "export", "mug", "--to"],
        ["lock", "revoke", "x", "--yes", "--json"],
        ["server", "--json"],
        ["sell", "orders.csv", "--stock", "1", "--segments", "1", "--results"],
    ],
    ids=lambda words: "-".join(words[:2]),
)
def test_a_file_that_cannot_be_written_is_refused_before_anything_else(
    tmp_path: Path, words: list[str], name: str, said: str
) -> None:
    ran = here(*words, name.format(folder=tmp_path))
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert said.format(folder=tmp_path) in ran.stderr
    assert list(tmp_path.iterdir()) == []
