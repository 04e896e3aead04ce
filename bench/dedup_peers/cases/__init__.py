"""The cases: each brings a contender into one situation, counts what happened, and says whether it held."""
