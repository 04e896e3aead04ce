"""The report of a session: figures, one HTML file, a table, and how to repeat it, all from the raw results."""
