"""Code that runs in the sandbox beside questions. It needs only the standard library and Python 3.6."""
