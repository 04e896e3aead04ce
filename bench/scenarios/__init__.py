"""Locust files: crowds that `locust -f` drives against servers that stand already."""
