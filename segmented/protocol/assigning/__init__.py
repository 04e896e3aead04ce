"""The assignment of a pool: the queue and the step of the workers that take its submitted orders."""
