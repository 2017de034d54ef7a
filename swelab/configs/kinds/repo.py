"""Recipes of repositories: where the code comes from in which tasks are made."""

from typing import Annotated, Literal

from pydantic import Field

from swelab.configs.recipe_model import OrAbsent, Recipe, Sha256

Owner = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9-]*$",
        description="owner of the project; the first part of instance ids",
    ),
]
Targets = Annotated[
    list[str], Field(min_length=1, description="patterns of the files that get bugs; * also matches /")
]
Tests = Annotated[
    list[str],
    Field(
        min_length=1,
        description="patterns of the test files, which are restored before grading; * also matches /",
    ),
]
TestCommand = Annotated[
    str,
    Field(
        min_length=1,
        description="shell command that runs the tests in the checkout, and prints one status line per test",
    ),
]
LogParser = Annotated[str, Field(description="name of swebench's parser for the log of test_cmd")]
TestTimeout = Annotated[int, Field(ge=1, description="wall time of test_cmd in grading, in seconds")]


class PypiRepo(Recipe):
    """A source archive from the package index that pip is configured to use."""

    source: Literal["pypi"]
    package: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="name of the package on the index"
    )
    version: str = Field(
        description="version of the package, for readers; the file name and the hash determine the archive"
    )
    file: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*\.tar\.gz$", description="file name of the source archive"
    )
    sha256: Sha256 = Field(description="hash of the archive")
    owner: Owner
    licence: Literal["MIT", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0"] = Field(
        description="SPDX name of the licence, which must allow changed copies"
    )
    licence_file: str = Field(description="path of the licence text in the archive")
    targets: Targets
    tests: Tests
    exclude: list[str] = Field(
        ["*.egg-info", "PKG-INFO", "__pycache__", "*.pyc"],
        description="patterns of file and folder names in the archive that a checkout does not contain",
    )
    only: OrAbsent[Targets] = Field(
        None,
        description="patterns of the only files that a checkout contains, such as one module and its test; "
        "if absent, all files that are not excluded",
    )
    test_cmd: TestCommand
    log_parser: LogParser = "parse_log_pytest"
    test_timeout: TestTimeout = 60


class GitRepo(Recipe):
    """A commit of a git repository, such as your own repository."""

    source: Literal["git"]
    repository: str = Field(min_length=1, description="folder or URL of the repository")
    commit: str = Field(pattern=r"^[0-9a-f]{40}$", description="full hash of the commit")
    install: str = Field(
        "",
        description="shell command that installs what the tests need, but not the package itself; it runs "
        "once, with network access, and pip installs into the checkout; empty if pytest is enough",
    )
    owner: Owner = "own"
    targets: Targets
    tests: Tests = "test_*.py */test_*.py *_test.py tests/* */tests/* conftest.py */conftest.py".split()
    exclude: list[str] = Field(
        ["*.egg-info", "__pycache__", "*.pyc"],
        description="patterns of file and folder names in the commit that a checkout does not contain",
    )
    test_cmd: TestCommand = "python -m pytest -rA --tb=no -q -p no:cacheprovider"
    log_parser: LogParser = "parse_log_pytest"
    test_timeout: TestTimeout = 60


class DrillRepo(Recipe):
    """A generated package of small functions with exact tests."""

    source: Literal["drill"]
    seed: int = Field(0, description="seed of the names and functions")
    modules: int = Field(ge=1, le=96, description="number of modules in the package; each has a test file")
    functions_per_module: int = Field(ge=1, description="number of functions per module")
    layout: OrAbsent[Literal["package", "two-file"]] = Field(
        None,
        description="content of a task's checkout: package (default) is the whole package; two-file is one "
        "module and its test",
    )


class HarborRepo(Recipe):
    """A repository inside the Harbor task folders that scripts.export_harbor wrote."""

    source: Literal["harbor"]
    path: str = Field(min_length=1, description="folder that contains the task folders")
    repository: str = Field(
        pattern=r"^[A-Za-z0-9_.-]+$",
        description="name of the repository in the task folders: `repository` in [metadata.swelab] of "
        "task.toml",
    )


Repo = Annotated[PypiRepo | GitRepo | DrillRepo | HarborRepo, Field(discriminator="source")]
