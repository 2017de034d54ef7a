"""Sets HOME to a folder in the clone if the home folder is not writable. Runs when Python starts in .venv.

Snakemake, torch, sglang and others write below the home folder before our code runs. This would fail for a
user id without an account, and for a read-only home folder.
"""

import os
import sys

_home = os.path.expanduser("~")
if not os.access(_home, os.W_OK | os.X_OK):
    for _name, _path in (("DOCKER_CONFIG", ".docker"), ("GIT_CONFIG_GLOBAL", ".gitconfig")):
        if os.path.exists(os.path.join(_home, _path)):  # existing settings are still read
            os.environ.setdefault(_name, os.path.join(_home, _path))
    _home = os.path.join(os.path.dirname(sys.prefix), ".snakemake", "home")
    try:
        os.makedirs(_home, mode=0o700, exist_ok=True)
        os.environ["HOME"] = _home
    except OSError:
        pass  # the clone is read-only, too: programs that need a home folder will fail with their own message
