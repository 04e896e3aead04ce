"""One adapter per library; each imports only that library."""
