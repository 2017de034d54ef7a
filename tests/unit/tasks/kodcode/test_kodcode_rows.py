"""Rows and folders of debugging tasks: valid ones, and the one line about each fault."""

import json
import shutil

import pytest

from swelab.configs.kinds.kodcode_subset import KodcodeSubset
from swelab.records import InputError
from swelab.tasks.kodcode import make_tasks
from swelab.tasks.kodcode.kodcode_rows import ENTRYPOINT, MOST_BYTES, STATEMENT, read_row, read_small_tasks
from tests.small_tasks import made, write_rows


def row(**extra):
    found, _ = made(1)
    return found | {"extra_info": found["extra_info"] | extra}


def files(**texts):
    return [{"path": path.replace("__", "/"), "content": text} for path, text in texts.items()]


TEST = {"path": "test.py", "content": "def test_a(): pass\n"}
CODE = {"path": "a_code.py", "content": "a = 1\n"}


def test_a_row():
    given = row()
    task = read_row(given, "rows, row 0")
    assert (task.name, task.code, task.readonly) == ("made_00001", "made_00001_code.py", ("test.py",))
    assert (
        task.entrypoint == given["extra_info"]["entrypoint"] and task.statement == given["problem_statement"]
    )
    assert list(task.files) == ["test.py", "made_00001_code.py"] and not task.hidden


@pytest.mark.parametrize("nested", ["extra_info", "files", "both", "entry"])
def test_nested_objects_may_be_json_strings(nested):
    given = row()
    extra = dict(given["extra_info"])
    if nested in ("files", "both"):
        extra["files"] = json.dumps(extra["files"])
    given["extra_info"] = json.dumps(extra) if nested in ("extra_info", "both") else extra
    if nested == "entry":
        given = {"task_id": given["task_id"], "entry": json.dumps(extra)}
    task = read_row(given, "x")
    assert task.files == {each["path"]: each["content"] for each in row()["extra_info"]["files"]}


def test_entry_points():
    """The row's own entry point comes first, then the recipe's, then our default."""
    assert read_row(row(entrypoint="pytest -x test.py"), "x", "py.test").entrypoint == "pytest -x test.py"
    assert read_row(row(entrypoint=None), "x", "py.test test.py").entrypoint == "py.test test.py"
    assert read_row(row(entrypoint=None), "x").entrypoint == ENTRYPOINT
    assert read_row(row() | {"problem_statement": None}, "x").statement == STATEMENT


def test_the_file_of_code():
    many = files(**{"test.py": "", "tool.py": "", "x_code.py": "", "notes.txt": "", "lib__more.txt": ""})
    task = read_row(row(files=many), "x")
    assert task.code == "x_code.py" and set(task.files) == {each["path"] for each in many}


IGNORED = {"path": ".debugignore", "content": "*_code.py\n"}
BARRED = {"path": ".debugreadonly", "content": "*.py\n"}
OUTSIDE = ("../a.py", "/a.py", "b/../../a.py", "b/./a.py", "a\\b.py", ".git/hooks/x.py", "", "a\0.py")
FAULTS = [  # a row, words of the message
    ([], ["a list; expected a JSON object"]),
    (row() | {"task_id": None, "extra_info": {"files": [TEST, CODE]}}, ["task_id is missing"]),
    (row() | {"task_id": "a/b"}, ["field task_id is 'a/b'", "letters, digits"]),
    (row() | {"extra_info": None}, ["extra_info.files is missing"]),
    (row() | {"extra_info": "{"}, ["field extra_info is no JSON: '{'"]),
    (row(files=None), ["extra_info.files is missing"]),
    (row(files=[]), ["extra_info.files is empty"]),
    (row(files={"test.py": ""}), ["extra_info.files is a dict", "a list of {path, content}"]),
    (row(files=[TEST, "a.py"]), ["extra_info.files[1] is a str"]),
    (row(files=[TEST, {"path": "a.py"}]), ["extra_info.files[1].content is missing"]),
    (row(files=[TEST, CODE, CODE]), ["extra_info.files[2].path: 'a_code.py' is there twice"]),
    *[
        (row(files=[TEST, CODE | {"path": path}]), ["leaves the task", "a path within it"])
        for path in OUTSIDE
    ],
    (row(files=[TEST, CODE, CODE | {"path": "a_code.py/b.txt"}]), ["'a_code.py/b.txt' lies below a file"]),
    (row(files=[TEST]), ["no file of code", "one .py beside test.py"]),
    (row(files=[TEST, CODE | {"path": "a.py"}, CODE | {"path": "b.py"}]), ["2 files of code (a.py, b.py)"]),
    (row(files=[CODE]), ["no test.py"]),
    (row(files=[TEST, CODE | {"content": "x" * MOST_BYTES}]), ["2 files of", "at most 50 of 1,048,576"]),
    (row(files=[TEST, *[CODE | {"path": f"{n}.txt"} for n in range(60)]]), ["61 files of"]),
    (row(files=[TEST, CODE | {"content": "\ud800"}]), ["a_code.py holds half a character", "UTF-8"]),
    (row(entrypoint="python test.py"), ["field entrypoint is 'python test.py'", "one run of pytest"]),
    (row(entrypoint="pytest test.py; rm -rf /"), ["one run of pytest"]),
    (row(files=[TEST, CODE, IGNORED]), [".debugignore hides a_code"]),
    (row(files=[TEST, CODE, BARRED]), [".debugreadonly bars a_code"]),
]  # fmt: skip


@pytest.mark.parametrize(("given", "words"), FAULTS)
def test_broken_rows(given, words):
    with pytest.raises(InputError) as caught:
        read_row(given, "rows.parquet, row 3")
    text = str(caught.value)
    assert text.startswith("rows.parquet, row 3") and "\n" not in text and len(text) < 600
    for word in words:
        assert word in text


def write_folder(place, **texts):
    for path, text in texts.items():
        file = place / path.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())


def test_folders(tmp_path):
    given = {
        "test.py": "def test_a(): pass\n",
        "data.txt": "1\n",
        "lib__old.log": "x",
        ".debugignore": "*.log\n",
    }
    write_folder(tmp_path / "one", **given, **{"one_code.py": "a = 1\n", ".debugreadonly": "*.txt\n# no\n"})
    write_folder(tmp_path / "two", **{"test.py": "", "solution.py": "", ".debugignore": "test.py\n!x\n"})
    (tmp_path / "readme.md").write_text("not a task")
    (tmp_path / ".hidden").mkdir()
    one, two = read_small_tasks(tmp_path)
    assert (one.name, one.code, set(one.files)) == (
        "one",
        "one_code.py",
        {"test.py", "data.txt", "one_code.py"},
    )
    assert set(one.readonly) == {"test.py", "data.txt"} and one.entrypoint == ENTRYPOINT and not one.hidden
    assert two.hidden and "test.py" in two.files and two.readonly == ("test.py",)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({"a_code.py": ""}, ["no test.py"]),
        ({"test.py": ""}, ["no file of code"]),
        ({"test.py": "", "a.py": "", "b.py": ""}, ["2 files of code"]),
        ({"test.py": "", "a.py": b"\xff\xfe"}, ["a.py: byte 0 is no UTF-8"]),
        ({"test.py": "", "a.py": "x" * (MOST_BYTES + 1)}, ["too large at a.py"]),
    ],
)
def test_broken_folders(tmp_path, texts, words):
    write_folder(tmp_path / "one", **texts)
    with pytest.raises(InputError) as caught:
        list(read_small_tasks(tmp_path))
    assert all(word in str(caught.value) for word in (str(tmp_path / "one"), *words))


def test_links_and_empty_places(tmp_path):
    write_folder(tmp_path / "set" / "one", **{"test.py": ""})
    (tmp_path / "set" / "one" / "a_code.py").symlink_to("/etc/passwd")
    with pytest.raises(InputError, match=r"a_code.py: a link; expected plain files"):
        list(read_small_tasks(tmp_path / "set"))
    shutil.rmtree(tmp_path / "set" / "one")
    with pytest.raises(InputError, match="no folder in it; expected a folder for each task"):
        list(read_small_tasks(tmp_path / "set"))
    with pytest.raises(InputError, match="no such file or folder"):
        list(read_small_tasks(tmp_path / "gone.parquet"))


def test_files_of_rows(tmp_path):
    rows = [made(number)[0] for number in range(3)]
    write_rows(rows, tmp_path / "a.parquet")
    shutil.copy(tmp_path / "a.parquet", tmp_path / "b.parquets")
    (tmp_path / "c.json").write_text(json.dumps(rows))
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    found = [
        [(task.name, task.files, task.entrypoint) for task in read_small_tasks(path)]
        for path in sorted(tmp_path.iterdir())
    ]
    assert len(found[0]) == 3 and found[0] == found[1] == found[2] == found[3]


def test_ids_and_sides(tmp_path):
    """A row with the same id and other files is refused before anything runs. An equal row is dropped."""
    rows = [made(number)[0] for number in range(2)]
    path = tmp_path / "rows.json"
    recipe = KodcodeSubset(source="kodcode", path=str(path), leave_out=["syn-debug"])
    path.write_text(json.dumps([rows[0], rows[1] | {"task_id": rows[0]["task_id"]}]))
    with pytest.raises(
        InputError, match=r"row 1 \(made_00000\): duplicate task_id made_00000; expected unique"
    ):
        make_tasks(recipe, lambda: None, tmp_path / "j.jsonl", 1)
    nothing = recipe.model_copy(update={"side": "heldout", "heldout_share": 1e-9})
    path.write_text(json.dumps([*rows, rows[0]]))
    with pytest.raises(InputError, match=r"no row is a task \({'other_side': 2, 'repeated_row': 1}\)"):
        make_tasks(nothing, lambda: None, tmp_path / "j.jsonl", 1)
    marked = recipe.model_copy(update={"evaluation_set": "syn-debug"})
    with pytest.raises(InputError, match=r"no row is a task \({'evaluation_row': 2, 'repeated_row': 1}\)"):
        make_tasks(marked, lambda: None, tmp_path / "j.jsonl", 1)
