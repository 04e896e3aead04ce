"""What an order costs in memory and on disk, by kind, and how much of it a trim and an archive give back."""
