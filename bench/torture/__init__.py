"""`segmented torture locks`: many contenders, holders that die or stand still, and a log that tells who was let in."""
