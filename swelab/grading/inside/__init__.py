"""Code that runs inside the sandbox beside the tests. It needs only the standard library and Python 3.6."""
