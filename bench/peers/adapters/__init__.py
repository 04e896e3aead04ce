"""One adapter a library; each imports that library and no other."""
