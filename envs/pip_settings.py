"""pip's settings of where packages come from, as the environment that pip and uv then run in."""

import ast
import http.client
import os
import ssl
import threading
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

ANSWER_SECONDS = 15
KEYS = {  # keys that pip gets, and uv's variable for each. Other keys could override the pins
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "",  # uv has an option for this, but no variable
    "proxy": "ALL_PROXY",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "trusted-host": "UV_INSECURE_HOST",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "retries": "UV_HTTP_RETRIES",
    "cache-dir": "UV_CACHE_DIR",
    "no-cache-dir": "UV_NO_CACHE",
}
OWN = tuple(  # prefixes of uv's variables that the user may set. They take precedence over pip's
    "UV_DEFAULT_INDEX UV_INDEX UV_EXTRA_INDEX UV_FIND_LINKS UV_INSECURE UV_HTTP UV_KEYRING UV_CACHE "
    "UV_NO_CACHE UV_LINK_MODE UV_CONCURRENT UV_SYSTEM_CERTS UV_NATIVE_TLS UV_OFFLINE "
    "UV_PYTHON_INSTALL UV_PYTHON_DOWNLOADS_JSON".split()
)


def read(listed: str) -> dict[str, str]:
    """Parses the output of `pip config list`. `install` overrides `global`, and variables override both."""
    settings = {}
    rows = [line.partition("=") for line in listed.splitlines()]
    for part in ("global", "install", ":env:"):
        for name, _, text in rows:
            section, _, key = name.rpartition(".")
            if section == part and key in KEYS:
                settings[key] = " ".join(str(ast.literal_eval(text)).split())
    return {
        key: value for key, value in settings.items() if value.lower() not in ("0", "false", "no", "off", "")
    }


def surroundings(settings: dict[str, str], outside: dict[str, str]) -> dict[str, str]:
    """Returns environment variables for pip and uv: those of `outside`, with only these settings of both."""
    inherited = {
        name: value for name, value in outside.items() if not name.startswith(("PIP_", "UV_", "PYTHON"))
    }
    own = {name: value for name, value in outside.items() if name.startswith(OWN)}
    if index := own.get("UV_DEFAULT_INDEX") or own.get("UV_INDEX_URL"):
        settings = settings | {"index-url": index}
    further = (
        own.pop("UV_INDEX", "") or own.pop("UV_EXTRA_INDEX_URL", "") or settings.get("extra-index-url", "")
    )
    pips = {f"PIP_{key.upper().replace('-', '_')}": value for key, value in settings.items()}
    uvs = {KEYS[key]: value for key, value in settings.items() if KEYS[key]}
    # uv takes all files of a version from the first index that has the version, and asks the default index
    # last unless it is named here, too. A further index may have a poorer file of the same version.
    uvs["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    if further:
        uvs["UV_INDEX"] = " ".join(filter(None, [settings.get("index-url"), further]))
    if links := settings.get("find-links"):  # uv fails if a folder is missing, pip does not
        uvs["UV_FIND_LINKS"] = ",".join(
            link for link in links.split() if "://" in link or Path(link).exists()
        )
    if proxy := settings.get("proxy"):
        proxy = proxy if "://" in proxy else f"http://{proxy}"
        uvs |= dict.fromkeys(
            "HTTP_PROXY HTTPS_PROXY ALL_PROXY http_proxy https_proxy all_proxy".split(), proxy
        )
    if cache := settings.get("cache-dir"):
        uvs["UV_CACHE_DIR"] = f"{cache}/uv"
    # uv.toml is ignored, because it could override the pins, too.
    always = {"PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1", "UV_PYTHON_DOWNLOADS": "never"}
    return {**inherited, **uvs, **own, **pips, **always}


def index_fault(url: str) -> str:
    """Returns why an index does not respond within ANSWER_SECONDS, or "" if it does."""
    parts = urlsplit(without_password(url))
    if parts.scheme not in ("http", "https"):
        return "" if Path(urllib.request.url2pathname(parts.path)).exists() else "no such folder"
    context = ssl.create_default_context()
    if {parts.hostname, parts.netloc} & {*os.environ.get("UV_INSECURE_HOST", "").split()}:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if client := os.environ.get("SSL_CLIENT_CERT"):
        context.load_cert_chain(client)
    fault = [f"no answer within {ANSWER_SECONDS} seconds"]

    def ask() -> None:
        for page in ("pip/", ""):  # an index may lack a list of packages, or pip
            try:
                address = f"{parts.geturl().rstrip('/')}/{page}"
                urllib.request.urlopen(address, timeout=ANSWER_SECONDS, context=context).close()
                fault[0] = ""
            except urllib.error.HTTPError as error:  # a request for a password is a response, too
                fault[0] = str(error) if error.code == 404 or error.code >= 500 else ""
            except (OSError, ValueError, http.client.HTTPException) as error:
                fault[0] = str(getattr(error, "reason", error))
            if "404" not in fault[0]:
                return

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    return fault[0]


def without_password(url: str) -> str:
    """Removes user name and password from an address."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
