"""The benchmark `dedup`: what `Once` adds to a trivial task, memory per record, a claim among a million live keys."""
