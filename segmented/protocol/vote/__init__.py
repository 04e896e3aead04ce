"""One server's vote for a lock that a majority keeps."""
