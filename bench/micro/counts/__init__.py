"""The cost of an operation in commands, round trips, attempts and bytes: the same numbers on every machine."""
