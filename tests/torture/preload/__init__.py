"""Small C libraries that are preloaded into a server process, to cause faults that no signal causes."""
