"""Python imports this when it starts in .venv: users without a home folder get one in the clone.

Snakemake, torch, sglang and others write below the home folder before any code of ours runs, each in a place
of its own; that fails for a user id without an account, and where the home folder is read-only.
"""

import os
import sys

_home = os.path.expanduser("~")
if not os.access(_home, os.W_OK | os.X_OK):
    for _name, _path in (("DOCKER_CONFIG", ".docker"), ("GIT_CONFIG_GLOBAL", ".gitconfig")):
        if os.path.exists(os.path.join(_home, _path)):  # what stands there to be read is still read
            os.environ.setdefault(_name, os.path.join(_home, _path))
    _home = os.path.join(os.path.dirname(sys.prefix), ".snakemake", "home")
    try:
        os.makedirs(_home, mode=0o700, exist_ok=True)
        os.environ["HOME"] = _home
    except OSError:
        pass  # a clone that cannot be written either: what needs a home folder will say so
