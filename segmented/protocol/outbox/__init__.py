"""Submitted orders: accepted with an outbox entry in one step, taken by workers, swept."""
