"""Other libraries' locks under our conformance suite, each in an environment of its own.

The modules of this package that a peer's environment imports (`contender` and the adapters) need nothing but Python and
that peer; the rows of the suite are in `tests/contract/locks/cases`.
"""
