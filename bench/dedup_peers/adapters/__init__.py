"""The same tasks, once a contender: each adapter configures as the documentation does, and hides nothing."""
