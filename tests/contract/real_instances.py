"""Three instances in SWE-bench's format: packages at a version whose bug a later version repairs.

No code of the packages is stored here. Their source archives come from the package index by hash, as the
forge downloads them. The patches are the differences of two archives, file by file.
"""

import difflib
import io
import json
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from swelab.configs.kinds.repo import PypiRepo
from swelab.files.package_index import fetch_archive
from swelab.records.task_records import Task
from swelab.tasks.forge.archive import read_members

SCRIPT = """#!/bin/bash
set -uxo pipefail
source /opt/miniconda3/bin/activate
conda activate testbed
cd /testbed
git config --global --add safe.directory /testbed
cd /testbed
git status
git show
git -c core.fileMode=false diff {base}
source /opt/miniconda3/bin/activate
conda activate testbed
git checkout {base} {tests}
git apply -v - <<'EOF_114329324912'
{patch}
EOF_114329324912
: '>>>>> Start Test Output'
pytest -rA {tests}
: '>>>>> End Test Output'
git checkout {base} {tests}
"""
CONDA = 'conda() { export PATH="/opt/toolbox/bin:$PATH"; }\n'
"""Stands in for conda, in whose environment the benchmark's images have their Python."""


@dataclass(frozen=True)
class Case:
    """A real bug.

    versions: (version, sha256) of an earlier release, the release with the bug, and the repaired release.
    """

    package: str
    repo: str
    versions: tuple[tuple[str, str], ...]
    code: str
    tests: str
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    new_style: bool
    needs: tuple[
        tuple[str, str, str], ...
    ] = ()  # (package, version, sha256) of pure Python packages that the tests import

    @property
    def instance(self) -> str:
        """Returns the instance id in SWE-bench's form."""
        return f"{self.repo.replace('/', '__')}-{self.versions[1][0].replace('.', '')}"


CASES = (
    Case(
        "inflection",
        "jpvanhal/inflection",
        (
            ("0.3.0", "c6ab173181fd3bbee53187b7535f395ed802ef69d9f3bb5f8c2a5cdfb3e92d08"),
            ("0.3.1", "18ea7fb7a7d152853386523def08736aa8c32636b047ade55f7578c4edeb16ca"),
            ("0.4.0", "32a5c3341d9583ec319548b9015b7fbdf8c429cbcb575d326c33ae3a0e90d52c"),
        ),
        "inflection.py",
        "test_inflection.py",
        (
            "test_inflection.py::test_pluralize_singular[passerby-passersby]",
            "test_inflection.py::test_singularize_plural[passerby-passersby]",
            "test_inflection.py::test_pluralize_plural[passerby-passersby]",
        ),
        (
            "test_inflection.py::test_pluralize_singular[search-searches]",
            "test_inflection.py::test_pluralize_plurals",
            "test_inflection.py::test_uncountability[equipment]",
        ),
        True,
    ),
    Case(
        "xmltodict",
        "martinblech/xmltodict",
        (
            ("1.0.1", "43f06e35e03f0f3ce622b9bd5e9652570a923db2906d5d4b830b76eafcafddcb"),
            ("1.0.2", "54306780b7c2175a3967cad1db92f218207e5bc1aba697d887807c0fb68b7649"),
            ("1.0.3", "3bf1f49c7836df34cf6d9cc7e690c4351f7dfff2ab0b8a1988bba4a9b9474909"),
        ),
        "xmltodict.py",
        "tests/test_dicttoxml.py",
        (
            "tests/test_dicttoxml.py::test_non_string_text_with_attributes",
            "tests/test_dicttoxml.py::test_none_text_with_short_empty_elements_and_attributes",
            "tests/test_dicttoxml.py::test_none_attribute_serializes_as_empty_string",
        ),
        ("tests/test_dicttoxml.py::test_root", "tests/test_dicttoxml.py::test_attrib"),
        True,
    ),
    Case(
        "marshmallow",
        "marshmallow-code/marshmallow",
        (
            ("3.20.2", "4c1daff273513dc5eb24b219a8035559dc573c8f322558ef85f5438ddd1236dd"),
            ("3.21.0", "20f53be28c6e374a711a16165fb22a8dc6003e3f7cda1285e3ca777b9193885b"),
            ("3.21.1", "4e65e9e0d80fc9e609574b9983cf32579f305c718afb30d7233ab818571768c3"),
        ),
        "src/marshmallow/schema.py",
        "tests/test_schema.py",
        ("tests/test_schema.py::test_fields_must_be_declared_as_instances",),
        (
            "tests/test_schema.py::test_serializing_basic_object[UserSchema]",
            "tests/test_schema.py::test_dump_many",
        ),
        False,
        (
            ("pytz", "2024.1", "2a29735ea9c18baf14b448846bde5a48030ed267578472d8955cd0e7443a9812"),
            ("simplejson", "3.19.2", "9eb442a2442ce417801c912df68e1f6ccfcd41577ae7274953ab3ad24ef7d82c"),
        ),
    ),
)


def archive(package: str, version: str, sha256: str, cache: Path) -> dict[str, bytes]:
    """Returns the files of a source archive by path."""
    name = f"{package}-{version}.tar.gz"
    recipe = PypiRepo.model_construct(package=package, version=version, file=name, sha256=sha256)
    return {path: data for path, (data, _) in read_members(fetch_archive(recipe, cache), name).items()}


def cut(before: dict[str, bytes], after: dict[str, bytes], path: str) -> str:
    """Returns a patch with the difference of one file between two archives."""
    old, new = (files[path].decode().splitlines(keepends=True) for files in (before, after))
    return f"diff --git a/{path} b/{path}\n" + "".join(
        difflib.unified_diff(old, new, f"a/{path}", f"b/{path}")
    )


def git(tree: Path, *words: str) -> str:
    """Runs git in a repository and returns its output."""
    plain = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "core.hooksPath=/dev/null")
    done = subprocess.run(["git", *plain, *words], cwd=tree, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def make(case: Case, tree: Path, cache: Path) -> tuple[dict, str]:
    """Fills `tree` with a repository with one commit per version, checked out at the bug.

    Returns (row, the commit that repairs the bug).
    """
    found = [archive(case.package, *version, cache) for version in case.versions]
    git(tree, "init", "-q", "-b", "main")
    commits = []
    for (version, _), files in zip(case.versions, found, strict=True):
        git(tree, "rm", "-rfq", "--ignore-unmatch", ".")
        for path, data in files.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_bytes(data)
        git(tree, "add", "-Af")
        git(tree, "commit", "-qm", f"{case.package} {version}")
        git(tree, "tag", f"v{version}")
        commits.append(git(tree, "rev-parse", "HEAD"))
    git(tree, "checkout", "-q", commits[1])
    bug, fix = found[1], found[2]
    tests = cut(bug, fix, case.tests)
    row = Task.of(
        {
            "repo": case.repo,
            "instance_id": case.instance,
            "base_commit": commits[1],
            "patch": cut(bug, fix, case.code),
            "test_patch": tests,
            "problem_statement": f"{case.package} {case.versions[1][0]} has a bug; the next one has not.",
            "hints_text": "",
            "created_at": "2024-01-01T00:00:00Z",
            "version": ".".join(case.versions[1][0].split(".")[:2]),
            "FAIL_TO_PASS": json.dumps(case.fail_to_pass),
            "PASS_TO_PASS": json.dumps(case.pass_to_pass),
            "environment_setup_commit": commits[1],
        }
    )
    if case.new_style:
        script = SCRIPT.format(base=commits[1], tests=case.tests, patch=tests.rstrip("\n"))
        row |= {"image": case.instance, "eval_script": script}
        row |= {"log_parser": "parse_log_pytest", "eval_type": "pass_and_fail"}
    else:
        row["image_name"] = case.instance
    return row, commits[2]


def files(case: Case, cache: Path) -> dict[str, bytes]:
    """Returns the files of a case's image outside the repository, by path: conda and test packages."""
    site = "opt/toolbox/lib/python3.11/site-packages"
    found = {
        "opt/miniconda3/bin/activate": CONDA.encode(),
        f"{site}/testbed.pth": b"/testbed/src\n/testbed\n",
    }
    for package, version, sha256 in case.needs:
        for path, data in archive(package, version, sha256, cache).items():
            if path.startswith(f"{package}/") and not path.startswith(f"{package}/tests/"):
                found[f"{site}/{path}"] = data
    return found


def _of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def tar(tree: Path, beside: dict[str, bytes]) -> bytes:
    """Returns the layer on top of the sandbox image: the repository and other files, all owned by root."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        made.add(tree, "testbed", filter=_of_root)
        for path, data in beside.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(data), 0o644
            made.addfile(entry, io.BytesIO(data))
    return out.getvalue()
