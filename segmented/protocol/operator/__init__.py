"""Operator commands: list names, show holders, revoke a lock."""
