"""The reentrant lock: a holder and its count."""
