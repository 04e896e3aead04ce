"""The signal for repeats: what was not run, and why."""

from __future__ import annotations

from celery.utils.dispatch import Signal

once_repeated = Signal(name="once_repeated", providing_args=["key", "message_id", "decision"])
"""Sent for each repeat, by the process that decides about it. The sender is the name of the task; `key` is the record's
key, `message_id` the first message. Decisions: `returned` (at publication: nothing was sent), and `answered` (in a
worker: the message got the outcome of the first).
"""
