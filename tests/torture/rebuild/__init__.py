"""`segmented torture rebuild`: the duration of a rebuild of a pool with many orders, and what others feel of it."""
