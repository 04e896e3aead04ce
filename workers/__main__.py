"""`python -m workers`: the same as `celery -A workers worker`, without looking into the current folder first."""

from __future__ import annotations

import sys

from celery import maybe_patch_concurrency

if __name__ == "__main__":
    maybe_patch_concurrency()  # before anything else is loaded: `--pool gevent` changes Python's own modules

    from segmented.errors import InvalidInput
    from workers.refusal import EXIT_WRONG, end

    try:
        from workers.app import app
    except InvalidInput as error:
        end(error, EXIT_WRONG)
    app.worker_main(["worker", *sys.argv[1:]])
