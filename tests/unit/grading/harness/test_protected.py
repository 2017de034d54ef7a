"""The files that decide how a patch is graded."""

import pytest

from swelab.grading.harness.protected import is_protected, to_remove

TESTS = ["pkg/tests/test_a.py", "test_root.py", "tests/unit/test_b.py"]


@pytest.mark.parametrize(
    "path",
    [
        *("conftest.py", "pkg/conftest.py", "pytest.ini", "deep/.pytest.ini", "pyproject.toml", "tox.ini"),
        *("setup.cfg", "setup.py", "noxfile.py", "Makefile", "sitecustomize.py", "src/usercustomize.py"),
        *("x.pth", "pkg.egg-info/entry_points.txt", "p-1.dist-info/METADATA", ".env", "bin/activate"),
        *("tests/unit/helper.py", "pkg/tests/data/x.json", "test_root.py", "pkg/new_test.py", "test_new.py"),
        *("package.json", "jest.config.js", "requirements.txt", "conftest.py/x"),
    ],
)
def test_protected(path):
    assert is_protected(path, TESTS)


@pytest.mark.parametrize(
    "path",
    [
        *("pkg/core.py pkg/setup.py pkg/testing.py django/test/client.py README.md pkg/tasks.py".split()),
        *("src/pkg/env.py", "docs/Makefile.md", "pkg/latest_news.py", "tests_util.py"),
    ],
)
def test_not_protected(path):
    assert not is_protected(path, TESTS)


def entry(path, kind="f", target=""):
    return f"{kind} 1 1.0 5 ./{path}\t{target}\0".encode()


def test_what_a_patch_added_is_removed():
    fresh = b"".join(
        [
            *(
                entry("pkg/core.py"),
                entry("conftest.py"),
                entry("tests/unit/test_b.py"),
                entry("x", "l", "/tmp"),
            ),
            *(entry("random.py"), entry("src/pytest/__init__.py"), entry("pkg/random.py"), entry("a.so")),
            *(entry("pkg/__pycache__/core.cpython-311.pyc"), entry("test_more.py"), entry("numbers.txt")),
        ]
    )
    kept = b"./tests/unit/test_b.py\0"
    assert to_remove(fresh, kept, b"./pkg\0./tests\0src/pkg\0", TESTS) == [
        *("conftest.py", "x", "random.py", "src/pytest/__init__.py", "a.so"),
        *("pkg/__pycache__/core.cpython-311.pyc", "test_more.py"),
    ]


def test_a_repository_by_the_name_of_a_known_module_may_be_changed():
    fresh = entry("src/attr/_make.py") + entry("six.py") + entry("random.py") + entry("src/mock/x.py")
    assert to_remove(fresh, b"", b"src/attr\0./six.py\0./src\0", TESTS) == ["random.py", "src/mock/x.py"]


def test_deep_paths_are_read_once():
    """A reader that checks each folder's whole path needs minutes for these."""
    deep = "a/" * 2000
    fresh = b"".join(entry(f"{deep}{number}.py") for number in range(300)) + entry(f"{deep}conftest.py")
    assert to_remove(fresh, b"", b"./a\0", TESTS) == [f"{deep}conftest.py"]
