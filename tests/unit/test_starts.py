"""What a user reads if something that was installed does not start."""

import subprocess
import sys

import pytest

from tests.unit.test_pip_settings import module

starts = module("starts")

SOUND = """Traceback (most recent call last):
  File "<string>", line 1, in <module>
  File "/x/.venv/lib/python3.11/site-packages/sglang/launch_server.py", line 7, in <module>
    import soundfile
  File "/x/.venv/lib/python3.11/site-packages/soundfile.py", line 187, in <module>
    import _soundfile_data
ModuleNotFoundError: No module named '_soundfile_data'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/x/.venv/lib/python3.11/site-packages/soundfile.py", line 218, in <module>
    _snd = _ffi.dlopen(_explicit_libname)
OSError: cannot load library 'libsndfile.so': libsndfile.so: cannot open shared object file: No such file

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/x/.venv/lib/python3.11/site-packages/transformers/utils/import_utils.py", line 2, in <module>
RuntimeError: Failed to import trl
"""


def test_a_missing_library_is_named_with_the_package_that_wants_it():
    wanted = "soundfile needs the shared library libsndfile.so (Debian's package libsndfile1 has it)"
    assert starts.fault(SOUND) == wanted


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (
            "import ctypes; ctypes.CDLL('libabsent.so.3')",
            "a package needs the shared library libabsent.so.3 (apt-file search libabsent.so.3 has it)",
        ),
        ("import absent_package", "ModuleNotFoundError: No module named 'absent_package'"),
        ("raise SystemExit(3)", "no message"),
    ],
)
def test_what_python_prints_becomes_one_line(code, line):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert starts.fault(done.stderr) == line
