"""Python imports this when it starts in .venv: users without a home folder keep caches in the clone.

Snakemake and others write to ~/.cache before any code of ours runs; that fails for a user id without an
account, and where the home folder is read-only.
"""

import os
import sys

if "XDG_CACHE_HOME" not in os.environ:
    _home = os.path.expanduser("~")
    _cache = os.path.join(_home, ".cache")
    if not os.access(_cache if os.path.isdir(_cache) else _home, os.W_OK | os.X_OK):
        os.environ["XDG_CACHE_HOME"] = os.path.join(os.path.dirname(sys.prefix), ".snakemake", "cache")
    if not os.path.isabs(_home):
        os.environ["HOME"] = "/nonexistent"  # else "~" itself becomes a folder's name
