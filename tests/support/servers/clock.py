"""A library that sets a server's clock, for tests; without a C compiler they are skipped."""

from pathlib import Path

from tests.support.rings import require
from tests.torture.preload import compiled, compiler


def compiled_library(folder: Path) -> Path:
    """Compile the library into `folder`; without a C compiler the test is skipped, or fails under CI."""
    found = compiler()
    require("A server's own clock", found=found is not None, missing="no C compiler (cc) to build its library with")
    assert found is not None
    return compiled("clock", folder, found)
