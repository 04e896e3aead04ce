"""The historical lock of SETNX, GET and GETSET."""
