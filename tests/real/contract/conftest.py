"""Each request of a contract test ends by its answer, however busy the machine is."""

import pytest

from tests.fixtures.patience import wait_for_answers


@pytest.fixture(autouse=True)
def patient_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that tests the bounds themselves has a fixture of this name in its place."""
    wait_for_answers(monkeypatch)
