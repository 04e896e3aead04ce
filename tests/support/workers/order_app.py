"""The workers' app, with a visibility timeout that its settings would refuse."""

from __future__ import annotations

import os

from segmented.celery.app import app

app.conf.broker_transport_options = {
    **app.conf.broker_transport_options,
    "visibility_timeout": float(os.environ["ORDER_APP_VISIBILITY"]),
    "unacked_restore_interval": 0.2,
}
