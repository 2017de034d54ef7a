"""Names that a patch's code may not use, and code that is not a cheat."""

import pytest

from swelab.files import python_syntax
from swelab.grading.harness.audit import MOST_FINDINGS, binaries, dynamic, findings
from swelab.records.patch_reader import read_patch
from tests.growth import TIMES, growth


@pytest.mark.parametrize(
    "code, word",
    [
        ("import pytest", "imports pytest"),
        ("from _pytest import runner", "imports _pytest"),
        ("import unittest.mock as m", "imports unittest"),
        ("import sys\nsys.modules['x']", "sys.modules"),
        ("from sys import modules", "modules"),
        ("import os\nos._exit(0)", "_exit"),
        ("from os import _exit as leave", "_exit"),
        ("f.f_back", "f_back"),
        ("getattr(f, 'f_back')", "f_back"),
        ("import gc", "gc"),
        ("exec('x')", "exec"),
        ("__import__('x')", "__import__"),
        ("x = '_py' 'test'", "_pytest"),
        ("open('/proc/self/fd/1')", "/proc/"),
        ("import os\nos.fork()", "fork"),
        ("import bdb", "imports bdb"),
        ("frame.f_lineno = 3", "f_lineno"),
        ("import math\nmath.isclose = f", "changes math.isclose"),
        ("import math\n_m = math\n_m.isclose = max", "changes _m.isclose"),
        ("import os.path as p\ndef f():\n    p.exists = print", "changes p.exists"),
        ("from os import path\npath.exists = print", "changes path.exists"),
        ("import z.b\ndel z.b.c", "changes z.c"),
        ("import json\nsetattr(json, 'x', 1)", "changes json by setattr"),
        ("import json\njson.__dict__.update(loads=f)", "names of json"),
        ("import sys as s\ns.modules['x']", "sys.modules"),
        ("import inspect as i\ni.stack(0)", "inspect.stack"),
        ("import sys\nsys.path.append('x.zip')", "sys.path"),
        ("m.__path__.append('x.zip')", "__path__"),
        ("import timeit\ntimeit.Timer('x').timeit()", "imports timeit"),
        ("from typing import get_type_hints", "get_type_hints"),
        ("type(__loader__)('a', 'b.txt')", "__loader__"),
        ("import codecs\ncodecs.register(f)", "codecs.register"),
        ("getattr(e, '__trace' + 'back__')", "joins parts to __traceback__"),
        ("getattr(e, 'ex' + 'e' + 'c')", "joins parts to exec"),
        ("'{0.__trace' 'back__.tb_frame}'.format(e)", "names tb_frame"),
        ("'{0.tb_' + 'frame.f_' + 'back}'.format(e)", "names tb_frame"),
        ("print.__self__.open = f", "uses __self__"),
        ("# coding: utf-7\n# +AAo-x", "is written in utf-7"),
        ("# coding: unicode_escape\n# \\x0ax", "is written in unicode_escape"),
        ("# coding: hidden\n# 00", "is written in an unknown encoding"),
        ("gr\ufffd\ufffde = 1", "no Python"),
        ("open('/testbed/tests/test_x.py')", "/testbed"),
        ("import mmap", "imports mmap, which outlives the run"),
        ("import mmap\nm = mmap.mmap(-1, 9)\nn = mmap.mmap(fd, 0)", "imports mmap, which outlives the run"),
        ("import mmap as m\nf = m.mmap", "imports mmap, which outlives the run"),
        ("from fcntl import ioctl", "imports fcntl, which outlives the run"),
        ("from os import preadv", "imports preadv, which outlives the run"),
        ("import os\nos.posix_fadvise(f, 0, 0, 4)", "uses posix_fadvise, which outlives the run"),
        ("getattr(os, 'posix_' + 'fadvise')", "joins parts to posix_fadvise, which outlives the run"),
        ("import os as o\no.read(7, 10)", "uses descriptor 7, which outlives the run"),
        ("from os import fdopen\nfdopen(9)", "uses descriptor 9, which outlives the run"),
        ("open(4)", "uses descriptor 4, which outlives the run"),
        ("open('/proc/self/stat')", "names /proc/, which outlives the run"),
    ],
)
def test_found(code, word):
    found = findings("a.py", code, "", "")
    assert found and any(word in each for each in found), found


@pytest.mark.parametrize(
    "code",
    [
        "import re\nre.compile('x')",
        "class A:\n    def __eq__(self, other):\n        return self.x == other.x",
        '"""Run pytest to see."""\n\n\ndef f():\n    """PASSED and FAILED, by pytest."""',
        "# import pytest\nx = 1",
        "from . import code, gc",
        "import importlib.metadata\nfrom importlib import resources",
        "def f(process):\n    process.kill()",
        "x = 'the test passed'",
        "import json\ndef f(json):\n    json.x = 1",
        "import parser\ndef f():\n    parser = make()\n    parser.x = 1",
        "from a.settings import options\noptions.x = 1",
        "import a.settings\na.settings.x = 1",
        "STATUS = {'PASSED': 1, 'FAILED': 2}\nraise ValueError('ERROR: no number')",
        "from importlib import import_module\nimport_module('x')",
        "import sys\nx = sys.modules[__name__].y",
        "for each in Base.__subclasses__():\n    each()",
        "import atexit\natexit.register(close)",
        "class A:\n    __le__ = lambda self, other: self.x <= other.x",
        "class A:\n    def __eq__(self, other):\n        return True",
        "HELP = 'Run it with pytest, or python -m pytest tests.'",
        "# -*- coding: latin-1 -*-\nx = 1",
        "x = 'a text' + ' and another'",
        "import operator\nX = {name: each for name, each in vars(operator).items()}",
        "class A:\n    def f(self):\n        self.x = 1",
        "import os\nos.write(1, b'x')\nstream.read(4096)\nos.read(descriptor, 10)",
        "x = open('a')\nnumpy.load('a', mmap_mode='r')",
        "import mmap\nwith mmap.mmap(-1, mmap.PAGESIZE) as m:\n    m.read(1)",
    ],
)
def test_not_found(code):
    assert findings("a.py", code, "", "") == []


def test_what_was_there_or_is_in_the_gold_patch_does_not_count():
    assert findings("a.py", "import gc\nimport ctypes", "import gc", "") == ["a.py:2: imports ctypes"]
    assert findings("a.py", "import gc", "", "+import gc\n") == []
    assert findings("a.py", "(", "(", "") == [] != findings("a.py", "(", "", "")


def test_what_was_there_is_pardoned_as_often_as_it_was_there():
    old = "x = exec('1')\n"
    assert findings("a.py", "\n\nx = exec('2')\n", old, "") == []
    assert findings("a.py", old + "y = exec('2')\n", old, "") == ["a.py:2: uses exec"]
    gold = "--- a/exec.py\n+++ b/exec.py\n exec('0')\n+exec('1')\n"
    assert findings("a.py", "exec('2')\n", "", gold) == []
    assert findings("a.py", "exec('2')\nexec('3')\n", "", gold) == ["a.py:2: uses exec"]


def test_dynamic_code_asks_for_a_second_look():
    assert dynamic("def f(a):\n    return a + 1\n", "def f(a):\n    return a - 1\n") == []
    assert dynamic("x = getattr(a, b)", "") == ["getattr"]
    assert dynamic("import threading", "") == ["threading"]
    assert dynamic("class A:\n    def __eq__(self, o): return o", "") == ["__eq__"]
    assert dynamic("x = getattr(a, b)", "y = getattr(c, d)") == []
    assert dynamic("class A:\n    __eq__ = same", "") == ["__eq__"]
    assert dynamic("type('A', (), {'__eq__': f})", "") == ["__eq__", "type"]
    assert dynamic("make_dataclass('A', [], namespace=x)", "") == ["make_dataclass", "namespace"]
    assert dynamic("class A:\n    def __init_subclass__(cls): pass", "") == ["__init_subclass__"]
    same = "def assert_same(a, b):\n    assert a == b\n"
    assert dynamic(same.replace("assert a == b", "pass"), same) == ["def assert_same(a, b)"]
    assert dynamic(same + "x = 1\n", same) == []
    assert dynamic("(", "") == ["a file that cannot be parsed"]


@pytest.mark.parametrize("text", ["\n" * 10**6, "= " * 500_000, "=" * 10**6, "= failed" * 100_000])
def test_a_long_constant_is_read_once(text):
    """A reader that tries each place again takes quadratic time: hours for these constants."""
    assert findings("a.py", f"x = {text!r}", "", "") == []


def sum_of(count):
    return "x = " + " + ".join(["'a'"] * count)


def dotted(count):
    return "x = a" + ".b" * count


def test_long_sums_and_dotted_names_are_read():
    assert len(findings("a.py", sum_of(2000), "", "")) == MOST_FINDINGS
    assert findings("a.py", dotted(2000), "", "") == []


@pytest.mark.full
@pytest.mark.parametrize("make", [sum_of, dotted])
def test_added_constants_and_dotted_names_are_read_once(make):
    assert growth(lambda code: findings("a.py", code, "", ""), make, 500) < TIMES


NESTED = "".join(" " * depth + "def {name}():\n" for depth in range(90)) + " " * 90 + "a;" * 5000 + "a\n"


@pytest.mark.parametrize("name", ["f", "__eq__", "assert_same"])
def test_functions_in_functions_are_not_read_once_for_each_of_them(name, monkeypatch):
    source = NESTED.format(name=name)
    nodes = len(python_syntax.walk(python_syntax.parse_python(source)))
    read = []
    children = python_syntax.children
    monkeypatch.setattr(python_syntax, "children", lambda node: read.append(1) or children(node))
    assert findings("a.py", source, "", "") == []
    dynamic(source, "")
    assert nodes < len(read) < 20 * nodes


def test_no_more_findings_are_made_than_anyone_reads():
    many = "import os\n" + "".join(f"os.a{number} = 1\n" for number in range(5000))
    assert len(findings("a.py", many, "", "")) == MOST_FINDINGS


def test_a_name_that_means_something_else_too_is_no_module():
    assert findings("a.py", "import m\nm.y = 1\n", "", "") == ["a.py:2: changes m.y"]
    assert findings("a.py", "import m\ndef f(m):\n    m.y = 1\n", "", "") == []


def test_a_binary_file_can_be_an_archive_of_code():
    head = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+GIT binary patch\n"
    binary = (
        "diff --git a/t b.dat b/t b.dat\nnew file mode 100644\nindex 0..1\nGIT binary patch\nliteral 3\nabc\n"
    )
    assert binaries(read_patch(head)) == []
    assert binaries(read_patch(head + binary)) == ["t b.dat: is a binary file"]
