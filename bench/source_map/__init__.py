"""Draws how control passes from file to file of `segmented`: `python -m bench.source_map docs/charts`.

It runs real operations on a server of its own and records which file calls which. No file is named here, so a picture
that is drawn again after files have moved shows the new ones.
"""
