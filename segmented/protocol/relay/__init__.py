"""The relay of a pool's ledger: the pool notes up to which change its ledger is in a database."""
