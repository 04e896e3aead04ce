"""Simulates a network with a given round trip in front of a local server: each byte is delayed by half of it."""
