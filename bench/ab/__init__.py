"""Two builds of the library side by side: both alternate within seconds, so that a change can be told from noise."""
