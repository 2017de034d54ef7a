"""The tools view and rewrite count lines as Python does."""

from swelab.agents.debugger.file_tools import rewrite, view
from swelab.agents.debugger.task_files import TaskFiles


class Folder:
    """The files of a sandbox."""

    def __init__(self, **files):
        self.files = files

    def get(self, path, most):
        return self.files[path]

    def put(self, path, content):
        self.files[path] = content


class Pdb:
    """A debugger without a session, and without breakpoints."""

    breakpoints = ()

    def move_breakpoints(self, path, before, after):
        return ""


def test_a_lone_cr_ends_a_line_for_view_and_for_rewrite():
    folder = Folder(**{"m.py": b"a = 'x\ry'\nb = 2\nc = 3\r\nd = 4"})
    files = TaskFiles(folder)
    shown = view(files, Pdb(), 50, "m.py", 0, 0, True).split("\n")
    assert shown == ["m.py, lines 1 to 5 of 5:", "a = 'x", "y'", "b = 2", "c = 3\r", "d = 4"]
    told, changed = rewrite(files, Pdb(), "m.py", 3, 3, "b = 22")
    assert changed and folder.files["m.py"] == b"a = 'x\ry'\nb = 22\nc = 3\r\nd = 4"
    assert "-b = 2\n+b = 22" in told and "@@ -1,5 +1,5 @@" in told


def test_an_empty_file_and_a_last_line_without_an_end():
    files = TaskFiles(Folder(empty=b"", one=b"x"))
    assert view(files, Pdb(), 9, "empty", 0, 0, True) == "empty is empty."
    assert view(files, Pdb(), 9, "one", 0, 0, True) == "one, lines 1 to 1 of 1:\nx"
