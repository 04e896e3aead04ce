"""The process in which the Python of one page runs, block after block, as if typed into one file.

Reads a line of JSON for each block (`code`, `name`, `line`) and answers with one: what was printed, and the traceback.
"""

import contextlib
import io
import json
import os
import sys
import traceback


def main() -> None:
    """Run blocks until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a child process prints is no answer
    names: dict[str, object] = {"__name__": "__main__"}
    sys.modules["__main__"].__dict__.update(names)
    names = sys.modules["__main__"].__dict__
    for line in sys.stdin:
        block = json.loads(line)
        printed, error = io.StringIO(), ""
        with contextlib.redirect_stdout(printed):
            try:
                exec(compile("\n" * (block["line"] - 1) + block["code"], block["name"], "exec"), names)  # noqa: S102  # a page's own code
            except BaseException:  # noqa: BLE001  # whatever ends a block fails its page
                error = traceback.format_exc()
        answers.write(json.dumps({"printed": printed.getvalue(), "error": error}) + "\n")
        answers.flush()


if __name__ == "__main__":
    sys.path.insert(0, "")
    main()
