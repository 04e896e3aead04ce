"""The audit of a pool: read its keys in pages, trim its ledger, repair its records."""
