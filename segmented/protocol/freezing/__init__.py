"""Pools that lost acknowledged changes: they are frozen, and thawed from numbers that are known from outside."""
