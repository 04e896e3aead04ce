"""The benchmark `dedup`: what `Once` adds to a trivial task, memory a record, and a claim among a million live keys."""
