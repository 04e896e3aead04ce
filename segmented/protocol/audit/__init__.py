"""The audit of a pool: its keys read in pages, its ledger trimmed, its records mended."""
