"""A sandbox to attack."""

import pytest

from tests.contract.attacks import SHORT


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """The smallest source tree."""
    folder = tmp_path_factory.mktemp("tree")
    (folder / "a.txt").write_text("hello\n")
    return folder


@pytest.fixture
def sandbox(backend, tree):
    """A fresh sandbox with short limits."""
    with backend.start(tree, limits=SHORT) as opened:
        yield opened
