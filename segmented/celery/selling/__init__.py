"""Selling a file of orders: what `segmented sell` does, one concern a module."""
