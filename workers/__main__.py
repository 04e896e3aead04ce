"""`python -m workers`: the same as `celery -A workers.app worker`, without looking into the current folder first."""

from __future__ import annotations

import sys

from workers.app import app

if __name__ == "__main__":
    app.worker_main(["worker", *sys.argv[1:]])
