"""Chubby's sequencers, and values that refuse an older token."""
