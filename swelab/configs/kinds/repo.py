"""Recipes of repositories: where the code comes from in which tasks are made."""

from typing import Annotated, Literal

from pydantic import Field

from swelab.configs.recipe_model import OrAbsent, Recipe, Sha256

Owner = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9-]*$", description="who keeps the project: first part of instance ids"
    ),
]
Targets = Annotated[
    list[str], Field(min_length=1, description="patterns of the files to put bugs into; * also matches /")
]
Tests = Annotated[
    list[str],
    Field(
        min_length=1,
        description="patterns of the files that hold tests, restored before grading; * also matches /",
    ),
]
TestCommand = Annotated[
    str,
    Field(min_length=1, description="shell command run in the checkout; prints one status line a test"),
]
LogParser = Annotated[str, Field(description="name of the parser of that log in swebench")]
TestTimeout = Annotated[int, Field(ge=1, description="seconds of wall time for test_cmd in grading")]


class PypiRepo(Recipe):
    """A source archive from the package index that pip is configured to use."""

    source: Literal["pypi"]
    package: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="name of the package on the index"
    )
    version: str = Field(description="version of the package, for people; the file name and hash decide")
    file: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*\.tar\.gz$", description="file name of the source archive"
    )
    sha256: Sha256 = Field(description="hash of that file")
    owner: Owner
    licence: Literal["MIT", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0"] = Field(
        description="SPDX name of the licence; changed copies must be allowed"
    )
    licence_file: str = Field(description="file of the archive that holds the licence's text")
    targets: Targets
    tests: Tests
    exclude: list[str] = Field(
        ["*.egg-info", "PKG-INFO", "__pycache__", "*.pyc"],
        description="patterns of file and folder names of the archive that a checkout does not have",
    )
    only: OrAbsent[Targets] = Field(
        None,
        description="patterns of the files that a checkout has and no others, such as one module and its "
        "test; absent: all that are not excluded",
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
        description="shell command that installs what the tests need, not the package itself; it runs once,"
        " with the network; pip installs into the checkout; empty: pytest is enough",
    )
    owner: Owner = "own"
    targets: Targets
    tests: Tests = [
        "test_*.py",
        "*/test_*.py",
        "*_test.py",
        "tests/*",
        "*/tests/*",
        "conftest.py",
        "*/conftest.py",
    ]
    exclude: list[str] = Field(
        ["*.egg-info", "__pycache__", "*.pyc"],
        description="patterns of file and folder names of the commit that a checkout does not have",
    )
    test_cmd: TestCommand = "python -m pytest -rA --tb=no -q -p no:cacheprovider"
    log_parser: LogParser = "parse_log_pytest"
    test_timeout: TestTimeout = 60


class DrillRepo(Recipe):
    """A generated package of small functions with exact tests."""

    source: Literal["drill"]
    seed: int = Field(0, description="seed of names and functions")
    modules: int = Field(ge=1, le=96, description="modules of the package, each with a test file")
    functions_per_module: int = Field(ge=1, description="functions of a module")
    layout: OrAbsent[Literal["package", "two-file"]] = Field(
        None,
        description="package, also where absent: a task's checkout is the whole package; two-file: one "
        "module and its test, nothing else",
    )


class HarborRepo(Recipe):
    """A repository inside the Harbor task folders that scripts.export_harbor wrote."""

    source: Literal["harbor"]
    path: str = Field(min_length=1, description="folder of the task folders")
    repository: str = Field(
        pattern=r"^[A-Za-z0-9_.-]+$",
        description="name of the repository there: `repository` of [metadata.swelab] in task.toml",
    )


Repo = Annotated[PypiRepo | GitRepo | DrillRepo | HarborRepo, Field(discriminator="source")]
