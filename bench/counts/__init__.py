"""What an operation costs in commands, round trips, attempts and bytes: the same numbers on every machine."""
