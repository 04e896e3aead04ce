"""The benchmark `demo`: four cells of the engine, one run each, and the conclusions from them."""
