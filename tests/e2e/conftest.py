import pytest

from tests.e2e.clone import make_clone, snakemake


@pytest.fixture(scope="session")
def clone(tmp_path_factory):
    return make_clone(tmp_path_factory.mktemp("chain") / "swelab")


@pytest.fixture(scope="session")
def chain(clone):
    """A finished run of the small experiment."""
    code, text = snakemake(clone)
    assert code == 0, text[-6000:]
    return clone
