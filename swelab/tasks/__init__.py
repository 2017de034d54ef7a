"""Sources of tasks, and the working copies in which tasks are solved."""
