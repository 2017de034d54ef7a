"""The corpus of forgeries and honest fixes: how its text becomes patches."""

import codecs
from collections import Counter

import pytest

from swelab.files.python_syntax import parse_python
from swelab.grading.cheats import corpus
from swelab.grading.cheats.corpus import Entry
from swelab.records import InputError
from swelab.tasks.checkout import RepoStore

BAD = "def add(a, b):\n    return a - b\n"


@pytest.fixture
def store(repos_dir, tmp_path):
    return RepoStore(repos_dir, tmp_path / "trees")


def added(patch):
    """Returns the lines that a patch adds, as one text."""
    lines = [line[1:] for line in patch.splitlines() if line.startswith("+") and line[:3] != "+++"]
    return "\n".join(lines)


def entry(text, kind="A"):
    return Entry("x", kind, "tries", "", text)


def test_the_corpus_is_large_and_each_entry_says_what_it_does():
    listed = corpus.entries(*corpus.FORGERIES, corpus.HONEST)
    kinds = Counter(each.kind for each in listed)
    assert sum(kinds[each] for each in "ABCDEF") >= 60 and min(kinds[each] for each in "ABCDEF") >= 8
    assert kinds["witness"] >= 12 and kinds["honest"] >= 40
    assert len({each.name for each in listed}) == len(listed)
    assert all(each.does and each.text.strip() for each in listed)


def test_every_forgery_for_any_task_is_code(task, store):
    listed = [each for each in corpus.entries(*corpus.FORGERIES) if each.suits(task)]
    assert len(listed) > 40
    for each in listed:
        told = added(corpus.patch_of(each, task, store))
        parse_python(told.encode("ascii", "ignore").decode(), each.name)


def test_words_stand_for_facts_of_the_task(task, store):
    text = "x = $tests, $names, $sizes, '$function', '${folder}', '${package}x'\n"
    told = added(corpus.patch_of(entry(text), task, store))
    assert "['tests/test_core.py::test_add'], ['test_add'], {'tests/test_core.py': " in told
    assert "'add', 'calc/', 'calc.x'" in told
    with pytest.raises(InputError, match=r"\$nothing stands for nothing"):
        corpus.patch_of(entry("$nothing"), task, store)


def test_further_files(task, store):
    text = "x = 1\n\n+++ ${folder}more.py comment utf-7\ny = 'a'\n\n+++ ${folder}t.dat zip m.py\nz = 2\n"
    told = corpus.patch_of(entry(text), task, store)
    assert "b/calc/more.py" in told and "GIT binary patch" in told and "+x = 1" in told
    hidden = added(told).partition("# -*- coding: utf-7 -*-\n")[2].split("\n")[0]
    assert "y" not in hidden and codecs.decode(hidden.encode(), "utf-7") == "# \ny = 'a'\n"


def test_an_honest_fix_takes_the_place_of_the_function(task, store):
    text = "def add(a, b):\n    return sum([a, b])\n\n+++ top\nimport math\n"
    told = corpus.patch_of(entry(text, "honest"), task, store)
    assert "-    return a - b\n+    return sum([a, b])" in told and "+import math\n def add" in told
    with pytest.raises(InputError, match="no function"):
        corpus.patch_of(entry(text, "honest"), task | {"function": "calc/core.py::gone"}, store)


def test_entries_are_dealt_among_the_tasks_that_they_suit(task):
    other = task | {"instance_id": "swelab__other.0.x", "function": "other.py::f"}
    one, two = (Entry(name, "A", "", where, "") for name, where in (("a", "calc"), ("b", "other.py::f")))
    dealt = list(corpus.assign([one, two, entry("")], [task, other]))
    assert [each["instance_id"] for _, each in dealt] == [
        task["instance_id"],
        "swelab__other.0.x",
        task["instance_id"],
    ]
