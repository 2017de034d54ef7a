"""Writes pip's settings of where packages come from to a pip.conf, and prints the folders that they name.

`pip config list | pip_conf.py FILE`
"""

import sys
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "envs"))
from pip_settings import read  # noqa: E402


def path(place: str) -> Path:
    """Returns the path of a folder or of its address, and the root folder for an address on the network."""
    parts = urlsplit(place)
    return Path(urllib.request.url2pathname(parts.path) if parts.scheme in ("", "file") else "/").absolute()


settings = read(sys.stdin.read())
settings.pop("cache-dir", None)
Path(sys.argv[1]).write_text("[global]\n" + "".join(f"{key} = {value}\n" for key, value in settings.items()))
indexes = f"{settings.get('index-url', '')} {settings.get('extra-index-url', '')}".split()
# The pages of an index link to wheels in a neighbouring folder, so the folder above both is needed.
places = [path(index).parent for index in indexes]
places += [path(link) for link in settings.get("find-links", "").split()]
print("\n".join(sorted({str(place) for place in places if place.is_dir() and place != Path("/")})))
