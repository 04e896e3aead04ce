"""The benchmark `stock`: what an order costs, alone, in batches and merged, beside a bare conditional decrement."""
