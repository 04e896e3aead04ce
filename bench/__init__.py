"""Measures what finer locks buy: strategies, scenarios and records."""
