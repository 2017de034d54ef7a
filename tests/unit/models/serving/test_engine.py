"""The interface of inference engines. No other module of the library knows a particular engine."""

from dataclasses import replace
from pathlib import Path

import pytest

from swelab.files.weights import check_weights
from swelab.models.serving.engine import ENGINES, ServerSettings, open_engine
from swelab.records import InputError
from tests.conftest import ROOT
from tests.toy_checkpoint import make_adapter, make_checkpoint

OWN = {
    *("models/serving/engine.py", "models/serving/sglang_engine.py", "models/serving/sglang_shapes.py"),
    *("jobs/provenance.py", "cluster/doctor.py", "evaluation/preconditions.py"),  # what is installed
    "configs/kinds/policy.py",  # the command line of `engine`
    "rollouts/mini_program.py",  # an option of the script that it replaces
}


@pytest.fixture
def asked(tmp_path):
    import sys

    folder = make_checkpoint(tmp_path / "toy")
    return ServerSettings(
        folder=folder,
        config=check_weights(folder),
        name="toy",
        key="hush",
        admin_key="secret",
        host="127.0.0.1",
        context_length=256,
        max_total_tokens=None,
        max_running_requests=4,
        on_cpu=True,
        dtype="auto",
        adapters={},
        extra_args=(),
        python=sys.executable,
    )


@pytest.mark.parametrize("name", ENGINES)
def test_what_an_engine_is_asked(name, asked, tmp_path):
    engine = open_engine(name)
    program = engine.program(asked, 4242)
    argv = program.arguments("/private")
    given = " ".join([*argv, *map(repr, program.files.values())])
    assert argv[0] == asked.python and "4242" in given and str(asked.folder) in given
    for key in ("hush", "secret"):
        assert key not in " ".join(argv) and key not in repr(asked)
        assert any(key.encode() in content for content in program.files.values())
    assert engine.listens.startswith("/") and engine.generates.startswith("/")
    assert engine.gpu_options(2, 4) and all(option.startswith("--") for option in engine.refused_options)
    lent = engine.program(replace(asked, adapters={"a": str(make_adapter(tmp_path / "adapter"))}), 1)
    assert str(tmp_path / "adapter") in " ".join(lent.arguments("/private")) + repr(lent.files)
    assert engine.adapter_model("toy", "a") != "toy"
    thinks = engine.program(replace(asked, reasoning_parser="qwen3"), 1).arguments("/private")
    assert "qwen3" in thinks and "qwen3" not in argv
    with pytest.raises(InputError, match="a LoRA adapter in PEFT's layout|no such file"):
        engine.program(replace(asked, adapters={"a": str(asked.folder)}), 1)


def test_nothing_else_knows_which_engine_it_is():
    """Exceptions are modules that talk to programs with their own servers, and name those."""
    library = ROOT / "swelab"
    naming = {
        str(path.relative_to(library))
        for path in library.rglob("*.py")
        if not {"shims", "engines"} & set(path.parts) and "sglang" in Path(path).read_text().lower()
    }
    assert naming <= OWN
