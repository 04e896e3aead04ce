# ruff: noqa: INP001  # a folder for PYTHONPATH, no package
"""Stands before hiredis on PYTHONPATH, so that redis-py does without it, in every process of a run."""

raise ImportError("hiredis is left out of this run on purpose")
