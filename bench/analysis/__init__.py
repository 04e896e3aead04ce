"""What follows from a result file: intervals, models, fits and comparisons. Pure functions; nothing here measures."""
