"""The guard's own files recognise the test runner and the runner's own changes."""

import functools
import inspect
import json
import subprocess
import sys
from importlib import resources

import pytest
from _pytest import legacypath
from _pytest.config import Config

from swelab.grading import inside
from swelab.grading.inside.powers import file_of, real
from swelab.grading.inside.watch import Integrity


def starts_runner(line):
    """Calls `startup.starts_runner` on a command line. Loading the file itself would start the guard."""
    source = (resources.files(inside) / "startup.py").read_text()
    before, _, after = source.rpartition("\nstart()")
    assert not after.strip()
    space = {"__file__": __file__}
    exec(compile(before, "startup", "exec"), space)
    return space["starts_runner"](line.split())


@pytest.mark.parametrize("line, told", [
    ("python /opt/bin/pytest -rA", True),
    ("python3.8 -u -W ignore /usr/bin/py.test x", True),
    ("python -m pytest", True),
    ("python -Werror -X dev -m pytest tests", True),
    ("python -m coverage run --source a -m pytest", True),
    ("python -m pip install pytest pytest-xdist", False),
    ("python /usr/bin/pip install pytest", False),
    ("python runtests.py pytest", False),
    ("python -c import_pytest", False),
    ("python", False),
])  # fmt: skip
def test_which_process_runs_the_tests(line, told):
    assert starts_runner(line) is told


def test_only_the_runners_own_plugin_may_replace_a_method_of_the_runner(monkeypatch):
    own = legacypath.Config__getini_unknown_type
    monkeypatch.setattr(Config, "_getini_unknown_type", lambda self, name, type, value: value)
    integrity = Integrity()

    def reported():
        return [label for label in integrity.changed(False) if label.endswith("._getini_unknown_type")]

    assert not reported()
    monkeypatch.setattr(Config, "_getini_unknown_type", own)
    assert not reported(), "pytest 7's own legacypath plugin does this when it is configured"
    monkeypatch.setattr(Config, "_getini_unknown_type", lambda self, name, type, value: value)
    assert reported()
    monkeypatch.setattr(Config, "_getini_unknown_type", legacypath.Session_startdir)
    assert reported(), "another function of the runner"
    monkeypatch.setattr(Config, "_getini_unknown_type", own)
    monkeypatch.setattr(own, "__code__", reported.__code__.replace(co_freevars=()))
    assert [label for label in integrity.changed(False) if "getini_unknown_type" in label]


def test_other_code_is_told_at_each_look_until_it_is_put_back(monkeypatch):
    integrity, watched = Integrity(), legacypath.Session_startdir
    assert not integrity.changed(False)
    watched.note = "pytest and its plugins leave attributes at functions"
    assert not integrity.changed(False)
    del watched.note
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(watched, "__code__", plain.__code__)
            for _ in range(2):
                assert "_pytest.legacypath.Session_startdir" in integrity.changed(False)
        assert not integrity.changed(False)


def test_a_look_reads_the_code_of_functions_only_where_something_changed():
    """Reading a function's code raises an audit event, and there are thousands of functions."""
    script = """
import sys, pytest
from swelab.grading.inside.watch import Integrity
events = []
integrity = Integrity()
assert len(integrity.functions) > 1000 and not integrity.changed(True)
sys.addaudithook(lambda event, words: words[1:] == ("__code__",) and events.append(event))
assert not integrity.changed(True) and not events
integrity.functions[0].__defaults__ = (1,)
assert not integrity.changed(True) and len(events) == len(integrity.functions)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


class Callable:
    def __call__(self, *words):
        return words


def plain(*words):
    return words


@pytest.mark.parametrize(
    "place, name, value",
    [
        (json, "loads", plain),
        (json, "loads", Callable()),
        (json, "loads", functools.partial(plain, 1)),
        (json, "loads", Callable().__call__),
        (json.JSONDecoder, "decode", plain),
        (json.JSONDecoder, "decode", staticmethod(plain)),
        (inspect.Signature, "parameters", property(plain)),
    ],
)
def test_code_of_a_patch_in_place_of_the_librarys_is_seen(monkeypatch, place, name, value):
    integrity = Integrity()
    assert not integrity.replaced({__file__: "x"}, False)
    monkeypatch.setattr(place, name, value)
    found = integrity.replaced({__file__: "x"}, False)
    assert len(found) == 1 and found[0].endswith(f"{place.__name__}.{name}")
    assert not integrity.replaced({"other": "x"}, False)


def test_a_path_is_read_for_what_it_is():
    class Text(str):
        def __str__(self):
            return "/elsewhere"

        def startswith(self, *words):
            raise ValueError

    class Bytes(bytes):
        def decode(self, *words):
            return "/elsewhere"

    assert real(Text("/a/b")) == real(Bytes(b"/a/b")) == "/a/b"
    assert real(3) == 3 and real(None) is None


def test_a_file_is_the_same_by_each_of_its_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "test_x.py"
    path.write_text("")
    (tmp_path / "link").symlink_to(path)
    (tmp_path / "other").hardlink_to(path)
    names = (path, f"/{path}", "./test_x.py", "/proc/self/cwd/test_x.py", "link", "other", b"other")
    assert len({file_of(name) for name in names}) == 1 and file_of(path)
    with path.open() as stream:
        assert file_of(stream.fileno()) == file_of(path)
    assert file_of("none") is file_of("a\0b") is file_of(object()) is None
