"""The benchmark `stock`: the cost of an order, alone, in batches and merged, and of a bare decrement."""
