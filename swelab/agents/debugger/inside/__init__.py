"""Code that runs in the sandbox under the task's own Python (3.7 or later), with only the standard
library."""
