"""Dropping records of finished orders that the order database answers for, while their pool is open."""
