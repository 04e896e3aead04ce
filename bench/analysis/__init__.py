"""Analysis of results files: intervals, models, fits and comparisons. Pure functions without measurements."""
