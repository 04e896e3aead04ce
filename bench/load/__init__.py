"""Code shared by the locustfiles of `bench/scenarios`: a sale in one or more processes, its figures, Locust tabs."""
