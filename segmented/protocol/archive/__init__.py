"""Archiving: a closed pool is read as a whole, then its keys are removed in bounded steps."""
