"""`segmented torture orders`: submitted orders, workers that are killed, and a count that trusts neither of them."""
