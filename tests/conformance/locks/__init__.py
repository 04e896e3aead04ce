"""Runs our conformance suite on other libraries' locks, each in its own environment.

A peer's environment imports only `contender` and the adapters, which need only Python, redis-py and that peer; the
rows of the suite are in `tests/support/contract/locks/cases`.
"""
