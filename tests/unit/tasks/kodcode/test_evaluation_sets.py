"""Known evaluation sets, recognised by hashes of ids."""

from collections import Counter
from unittest.mock import MagicMock

import pytest

from swelab.records import InputError
from swelab.records.task_records import Task
from swelab.tasks.disjoint import check_disjoint
from swelab.tasks.kodcode.kodcode_source import evaluation_set, known_ids, stand_in


def test_as_many_ids_as_were_counted():
    assert Counter(known_ids().values()) == {
        "canitedit": 104,
        "debugbench": 1126,
        "humaneval_buggy": 134,
        "mbpp_buggy": 253,
        "mini_nightmare": 10,
        "syn-debug": 100,
    }
    assert evaluation_set("mbpp_100") == "mbpp_buggy" and evaluation_set("humaneval_0") == "humaneval_buggy"
    assert evaluation_set("made_00001") == ""


def task(name, **more):
    row = {"instance_id": name, "repo": "r", "patch": "", "files": [{"path": "a.py", "content": name}]}
    return Task.of(row | more)


def test_training_on_them_is_refused():
    heldout = [task("c", evaluation_set="syn-debug")]
    assert check_disjoint([task("a"), task("b")], heldout)["disjoint"]
    wanted = r"2 of 3 tasks are of syn-debug, such as b; expected other tasks; `leave_out: \[syn-debug\]`"
    with pytest.raises(InputError, match=wanted):
        check_disjoint([task("a"), *(task(name, evaluation_set="syn-debug") for name in "bd")], [])


def test_the_same_files_under_another_id_are_on_both_sides():
    with pytest.raises(InputError, match="1 by bug"):
        check_disjoint([task("a", bug="same")], [task("b", bug="same")])


def test_a_stand_in_has_every_name():
    names = {}
    exec(stand_in("LIMIT = 3\ndef one():\n    pass\nclass Two:\n    pass\n_hidden = 1\n"), names)  # noqa: S102
    assert names["__all__"] == ["one", "Two", "LIMIT"]
    assert isinstance(names["__getattr__"]("anything"), MagicMock)
    exec(stand_in("def broken(:\nasync def two(): pass\n"), names)  # noqa: S102
    assert names["__all__"] == ["broken", "two"]
