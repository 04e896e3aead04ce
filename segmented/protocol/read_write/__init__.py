"""The read-write lock."""
