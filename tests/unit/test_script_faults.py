"""Every script says in one line what is wrong with its files, without a traceback.

write_schemas reads no file of its user.
"""

import argparse
import importlib
from pathlib import Path

import pytest

from swelab.console.terminal import run_script

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(
    path.stem for path in (ROOT / "scripts").glob("*.py") if path.stem not in ("__init__", "write_schemas")
)


class Parsed(Exception):
    """Carries a script's parser."""


def parser_of(main, monkeypatch):
    """Returns the parser of a script, without running the script."""

    def stop(parser, *_):
        raise Parsed(parser)

    with monkeypatch.context() as patched, pytest.raises(Parsed) as found:
        patched.setattr(argparse.ArgumentParser, "parse_args", stop)
        main()
    return found.value.args[0]


def words_of(parser, folder):
    """Returns a command line with each required option. Files do not exist."""
    words = []
    for action in parser._actions:
        if not (action.required or (action.option_strings and "input" in action.dest)):
            continue
        value = action.choices and next(iter(action.choices))
        value = value or ("1" if action.type in (int, float) else str(folder / f"no-{action.dest}"))
        words += [*action.option_strings[-1:], value]
    return words


@pytest.mark.parametrize("name", SCRIPTS)
def test_missing_files(name, tmp_path, monkeypatch, capsys):
    main = importlib.import_module(f"scripts.{name}").main
    words = words_of(parser_of(main, monkeypatch), tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [name, *words])
    with pytest.raises(SystemExit) as ended:
        run_script(main)
    told = capsys.readouterr()
    assert ended.value.code not in (0, None)
    assert "Traceback" not in told.err
    assert len([line for line in told.err.splitlines() if "error:" in line]) == 1
