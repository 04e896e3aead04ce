"""What an operator asks: names, holders, and to revoke a lock."""
