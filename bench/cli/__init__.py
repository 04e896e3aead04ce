"""The commands `segmented demo` and `segmented bench`."""
