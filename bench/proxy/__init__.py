"""A network of a given round trip before a server on this machine: every byte is passed on half of it later."""
