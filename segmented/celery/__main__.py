"""`python -m segmented.celery` starts a worker of `segmented.celery.app` without importing from the current folder."""

from __future__ import annotations

import gc
import sys

from celery import maybe_patch_concurrency

if __name__ == "__main__":
    maybe_patch_concurrency()  # before any other import: `--pool gevent` patches Python's own modules

    from segmented.errors import InvalidInput
    from segmented.imports import without_collecting
    from segmented.process import escape_output

    escape_output()

    with without_collecting():
        from segmented.celery.settings import EXIT_WRONG, end

        try:
            from segmented.celery.app import app
        except InvalidInput as error:
            end(error, EXIT_WRONG)
        app.loader.import_default_modules()
    gc.freeze()  # or a garbage collection in a child would copy every page of the imported modules
    app.worker_main(["worker", *sys.argv[1:]])
