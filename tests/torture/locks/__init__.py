"""`segmented torture locks`: many contenders, holders that die or are paused, and a log of every access."""
