"""Compares two builds of the library, which run in turns a few seconds apart."""
