"""What the locustfiles of `bench/scenarios` share: a sale by one process or many, its figures, and tabs for Locust."""
