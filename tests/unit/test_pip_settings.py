"""The settings of pip that reach uv, and hashes for all pins."""

import importlib.util

import pytest

from tests.conftest import ROOT


def module(name):
    """Loads a module of envs/, which is no package."""
    specification = importlib.util.spec_from_file_location(name, ROOT / f"envs/{name}.py")
    loaded = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(loaded)
    return loaded


pip_settings, add_hashes = module("pip_settings"), module("add_hashes")

LISTED = r"""
:env:.find-links='/env'
:env:.config-file='/a/pip.conf'
global.cert='/ca.pem'
global.constraint='/constraints.txt'
global.extra-index-url='\nhttps://one/simple\nhttps://two/simple'
global.find-links='/global'
global.index-url='https://me:secret@global/simple'
global.no-index='false'
install.index-url='https://install/simple'
install.target='/elsewhere'
wheel.index-url='https://wheel/simple'
""".strip()


def test_a_variable_wins_over_install_and_install_over_global():
    assert pip_settings.read(LISTED) == {
        "index-url": "https://install/simple",
        "extra-index-url": "https://one/simple https://two/simple",
        "find-links": "/env",
        "cert": "/ca.pem",
    }


def test_only_what_says_where_packages_come_from_reaches_uv(tmp_path):
    settings = {
        "index-url": "https://index/simple",
        "extra-index-url": "https://one/simple https://two/simple",
        "find-links": f"{tmp_path} {tmp_path}/absent https://links/",
        "proxy": "proxy:3128",
        "trusted-host": "index one:8080",
        "cert": "/ca.pem",
        "client-cert": "/me.pem",
        "default-timeout": "180",
        "retries": "9",
        "no-index": "1",
        "cache-dir": "/cache",
        "no-cache-dir": "true",
    }
    outside = {"PIP_TARGET": "/t", "UV_CONSTRAINT": "/c", "UV_NO_VERIFY_HASHES": "1", "PYTHONPATH": "/p"}
    found = pip_settings.surroundings(settings, outside | {"LANG": "C"})
    proxies = {
        name: "http://proxy:3128" for name in found if name.lower().endswith("_proxy") and name[:3] != "PIP"
    }
    assert len(proxies) == 6
    assert {name: value for name, value in found.items() if not name.startswith("PIP_")} == proxies | {
        "LANG": "C",
        "UV_DEFAULT_INDEX": "https://index/simple",
        "UV_INDEX": "https://index/simple https://one/simple https://two/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": f"{tmp_path},https://links/",
        "UV_INSECURE_HOST": "index one:8080",
        "SSL_CERT_FILE": "/ca.pem",
        "SSL_CLIENT_CERT": "/me.pem",
        "UV_HTTP_TIMEOUT": "180",
        "UV_HTTP_RETRIES": "9",
        "UV_CACHE_DIR": "/cache/uv",
        "UV_NO_CACHE": "true",
        "UV_NO_CONFIG": "1",
        "UV_PYTHON_DOWNLOADS": "never",
    }
    assert (
        found["PIP_CONFIG_FILE"] == "/dev/null" and found["PIP_NO_INDEX"] == "1" and "PIP_TARGET" not in found
    )


def test_the_users_own_variables_of_uv_win():
    outside = {"UV_DEFAULT_INDEX": "https://uv/simple", "UV_INDEX_CORP_PASSWORD": "x", "UV_CACHE_DIR": "/big"}
    found = pip_settings.surroundings({"index-url": "https://pip/simple", "cache-dir": "/pip"}, outside)
    assert outside.items() <= found.items() and found["PIP_INDEX_URL"] == "https://uv/simple"
    outside["UV_INDEX"] = "corp=https://corp/simple"
    found = pip_settings.surroundings({"extra-index-url": "https://one/simple"}, outside)
    assert found["UV_INDEX"] == "https://uv/simple corp=https://corp/simple"


def test_an_index_on_the_disk_is_looked_for_and_a_password_is_not_printed(tmp_path):
    assert pip_settings.index_fault(f"file://{tmp_path}") == ""
    assert pip_settings.index_fault(f"file://{tmp_path}/absent") == "no such folder"
    assert pip_settings.without_password("https://me:secret@host:8/simple") == "https://host:8/simple"


PINNED = "cpu sandbox host peer sb-cli modal swe-agent mini-swe-agent verl uv"


@pytest.mark.parametrize("name", PINNED.split())
def test_every_pin_has_a_hash(name):
    pins = (ROOT / f"envs/{name}.txt").read_text().replace("\\\n", "").splitlines()
    bare = [line for line in pins if not line.startswith("#") and "--hash=sha256:" not in line]
    assert not bare and any("==" in line for line in pins)


@pytest.mark.parametrize(
    ("files", "usable"),
    [
        (
            "a-1-py3-none-any.whl a-1-py3-none-manylinux_2_28_x86_64.whl",
            "a-1-py3-none-manylinux_2_28_x86_64.whl",
        ),
        ("a-1-py3-none-any.whl", "a-1-py3-none-any.whl"),
        ("", "a-1.tar.gz"),
    ],
    ids=["compiled", "for any machine", "source alone"],
)
def test_only_the_files_that_swelab_can_use_are_pinned(files, usable):
    wheels = [{"url": f"https://index/{name}"} for name in files.split()]
    package = {"name": "a", "wheels": wheels, "sdist": {"url": "https://index/a-1.tar.gz"}}
    assert [file["url"] for file in add_hashes.usable(package)] == [f"https://index/{usable}"]


def test_a_file_without_the_compiled_part_is_not_pinned():
    poor = "8ba81ae3a89fd5ab3bef8a8eb481fbbe794e806309675a89b4df48b8d31908a8"  # soundfile without its library
    assert not [name for name in PINNED.split() if poor in (ROOT / f"envs/{name}.txt").read_text()]
