"""Faults put into the code on purpose, each with the tests that must notice it."""
