"""What imports cost: the figures that are printed, and a number of rounds that cannot be."""

from __future__ import annotations

import pytest

from bench.micro import costs
from segmented.errors import InvalidInput


def test_each_import_is_compared_with_that_of_the_driver_and_a_bare_interpreter_is_taken_off() -> None:
    found = dict.fromkeys(costs.PROGRAMS, 0.5) | {"python": 0.1, "import redis": 0.3, "import segmented": 0.2}
    found |= {"pytest without the plugin": 1.0, "pytest with the plugin": 1.25}
    shown = costs.lines(found)
    assert shown[: len(costs.PROGRAMS)][0] == f"{'python':40}  0.100 s"
    assert shown[len(costs.PROGRAMS) :] == [
        "import segmented / import redis: 0.50",
        "from segmented import Lock / import redis: 2.00",
        "from segmented import Lock, RedisStore / import redis: 2.00",
        "from segmented import Pool, RedisStore / import redis: 2.00",
        "the pytest plugin adds 0.250 s to a run that does not use it",
    ]


@pytest.mark.parametrize("said", ["0", "x", "-1", "1001", ""])
def test_a_number_of_rounds_that_cannot_be_is_refused(said: str) -> None:
    with pytest.raises(InvalidInput, match="should be a whole number from 1 to 1,000"):
        costs.main([said])


@pytest.mark.timeout(300)  # nine Python processes, one after the other
def test_every_program_runs_once_in_a_round(capsys: pytest.CaptureFixture[str]) -> None:
    costs.main(["1"])
    assert len(capsys.readouterr().out.splitlines()) == len(costs.PROGRAMS) + 5
