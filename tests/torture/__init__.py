"""`segmented torture`: real processes that die, servers that forget, and promises that must hold."""
