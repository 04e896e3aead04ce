"""Permits that expire."""
