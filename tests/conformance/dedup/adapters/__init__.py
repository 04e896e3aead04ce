"""The same tasks for each contender: each adapter follows the documentation, and hides nothing."""
