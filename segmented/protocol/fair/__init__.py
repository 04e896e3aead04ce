"""The fair lock: a queue, and direct hand-off."""
