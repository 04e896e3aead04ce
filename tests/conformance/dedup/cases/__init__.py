"""The cases: each puts a contender into one situation, counts what happened, and returns whether it held."""
