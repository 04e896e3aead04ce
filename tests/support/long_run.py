"""Cases that show once more what a case beside them shows: left out by `make test-full`, run by `make test-long`."""

from typing import Any

import pytest
from _pytest.mark import ParameterSet


def in_the_long_run(*cases: Any) -> list[ParameterSet]:  # noqa: ANN401  # parameters of any kind
    """Mark cases of a parametrized test; one of several parameters is a tuple."""
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.long) for case in cases]
