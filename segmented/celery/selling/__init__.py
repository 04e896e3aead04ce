"""Sell a file of orders: the parts of `segmented sell`, one concern per module."""
