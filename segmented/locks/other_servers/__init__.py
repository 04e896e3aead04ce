"""Locks that do not depend on one Redis server, or are only for study: docs/how-to/lock-on-other-servers.md."""
