"""The benchmark `locks`: the cost of a lock alone, with waiters, and with thousands of leases; ratios from one run."""
