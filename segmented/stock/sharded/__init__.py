"""Pools in shards: one sku split over several hash slots, so that a cluster's masters share its load."""
