"""Code that runs inside the sandbox beside the tests: standard library only, Python 3.6 or newer."""
