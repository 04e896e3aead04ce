"""Lock granularity measured: cells of a plan, run interleaved and checked, one record a run."""
