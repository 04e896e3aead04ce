"""Locust files: load that `locust -f` generates against existing or embedded servers."""
