"""The benchmark `dedup`: what `Once` adds to a trivial task, memory per record, a claim among up to a million keys."""
