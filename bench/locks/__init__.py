"""The benchmark `locks`: what a lock costs alone, under waiters, and in thousands of leases; ratios from one run."""
