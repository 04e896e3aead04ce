"""One module per library; each imports only that library."""
