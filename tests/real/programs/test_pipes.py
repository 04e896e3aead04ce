"""Settings with a password that stand in files, as container engines and service managers hand secrets over."""

import os
from pathlib import Path

import pytest

from segmented import files as files_module
from segmented.errors import InvalidInput
from segmented.files import said_elsewhere


@pytest.mark.parametrize("has_writer", [False, True])
def test_a_pipe_that_nobody_ends_is_waited_for_only_some_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_writer: bool
) -> None:
    monkeypatch.setattr(files_module, "PIPE_SECONDS", 0.25)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writing = os.open(pipe, os.O_RDWR)
    if has_writer:
        os.write(writing, b"redis://:hunter2@")
    else:
        os.close(writing)
    with pytest.raises(InvalidInput) as refused:
        said_elsewhere(f"@{pipe}")
    assert str(refused.value) == f"the address: {pipe} cannot be read: its writer had not ended after 0.25 s"
    if has_writer:
        os.close(writing)
