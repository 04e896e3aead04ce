"""Stock as public samples of segmented locks sell it, written from their description, and the checks that they fail."""
