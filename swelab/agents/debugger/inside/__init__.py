"""What runs in the sandbox under the task's own Python, 3.7 or later: the standard library alone."""
