"""Rows of a subset are read one at a time. An empty subset is refused."""

import pytest

from swelab.records import InputError, write_json
from swelab.tasks.task_rows import read_tasks


def test_a_list_without_a_row_is_refused_and_a_part_without_one_is_not(task, tmp_path):
    path = tmp_path / "tasks.json"
    write_json(path, [task])
    assert list(read_tasks(path)) == [task] and list(read_tasks(path, lambda name: False)) == []
    write_json(path, [])
    for wanted in (None, lambda name: False):
        with pytest.raises(InputError, match="tasks.json: holds no task; expected at least one"):
            list(read_tasks(path, wanted))


@pytest.mark.parametrize("name", ["a__b-1\n", "a\nb", "a/b", ""])
def test_an_id_that_is_no_file_name_is_refused(task, tmp_path, name):
    path = tmp_path / "tasks.json"
    write_json(path, [task | {"instance_id": name}])
    with pytest.raises(InputError, match="instance_id"):
        list(read_tasks(path))
