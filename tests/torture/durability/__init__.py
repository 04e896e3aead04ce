"""`segmented torture durability`: what each set-up of the stock's server loses under each fault, and who notices it."""
