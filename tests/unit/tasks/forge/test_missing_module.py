"""What a recipe must say if the tests of a repository cannot import a module."""

import pytest

from swelab.tasks.forge.missing_module import advice, folder_of

WORDS = "ModuleNotFoundError: No module named 'pack'; and more"


@pytest.mark.parametrize(
    ("files", "folder"),
    [
        (["pack.py", "tests/test_a.py"], "."),
        (["pack/__init__.py"], "."),
        (["src/pack/__init__.py", "tests/pack/x.txt"], "src"),
        (["src/pack.py", "lib/deep/pack.py"], "src"),
        (["python/lib/pack.py"], "python/lib"),
        ([".swelab/site-packages/pack.py", "packed.py"], None),
        ([], None),
    ],
)
def test_the_folder_of_a_module(tmp_path, files, folder):
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert folder_of("pack", tmp_path) == folder
    told = advice(WORDS, tmp_path, "pytest -rA")
    assert (f"`test_cmd: pytest -o pythonpath={folder} -rA`" if folder else "`install: pip install") in told
    assert advice("AssertionError: no", tmp_path, "pytest -rA") == ""


def test_a_module_that_the_commit_lacks_is_written_by_the_command(tmp_path):
    (tmp_path / "src/pack").mkdir(parents=True)
    (tmp_path / "src/pack/__init__.py").touch()
    words = "ModuleNotFoundError: No module named 'pack.version'"
    assert "`test_cmd: ... >src/pack/version.py && pytest -rA`" in advice(words, tmp_path, "pytest -rA")
    (tmp_path / "src/pack/version.py").touch()
    assert "pytest -o pythonpath=src -rA" in advice(words, tmp_path, "pytest -rA")
