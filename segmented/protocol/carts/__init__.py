"""Orders of several lines over several pools: all lines or none."""
