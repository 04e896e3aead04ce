"""Scripts on damaged keys: whether what they leave behind is whole."""
