# ruff: noqa: INP001  # a folder for PYTHONPATH, no package
"""Stands before hiredis on PYTHONPATH, so that redis-py does without it, in every process of a run."""

message = "hiredis is left out of this run on purpose"
raise ImportError(message)
