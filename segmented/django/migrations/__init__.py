"""Migrations of the app: the gate's tables."""
