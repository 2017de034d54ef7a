"""Code that runs in the sandbox under the task's own Python (3.7 or later). It imports only the standard
library."""
