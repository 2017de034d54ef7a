"""Runs a reference harness unchanged and measures its time, in an environment with that harness.

    python benchmarks/reference_harness.py swebench --dataset D --predictions P --workers N --output O

Writes {"seconds": of the harness's main function without imports, "resolved": ids, "graded": number of
reports}. swesmith asks GitHub about each repository before it runs anything. Only this check is replaced,
because GitHub does not know the forged repositories. Logs go to the working folder.
"""

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path

RUN = "benchmark"


def swebench(args: argparse.Namespace) -> tuple[float, list[dict]]:
    """Runs swebench's run_evaluation. Returns the seconds, and the report of each instance."""
    from swebench.harness.run_evaluation import main

    start = time.perf_counter()
    main(
        dataset_name=args.dataset,
        split="test",
        instance_ids=[],
        predictions_path=args.predictions,
        max_workers=args.workers,
        open_file_limit=4096,
        run_id=RUN,
        timeout=1800,
        rewrite_reports=False,
        modal=False,
        report_dir=".",
    )
    seconds = time.perf_counter() - start
    reports = Path("logs/run_evaluation", RUN).glob("*/*/report.json")
    return seconds, [
        {"instance_id": name, **report}
        for path in reports
        for name, report in json.loads(path.read_text()).items()
    ]


def swesmith(args: argparse.Namespace) -> tuple[float, list[dict]]:
    """Runs swesmith's harness.eval. Returns the seconds, and the report of each instance."""
    from swesmith.harness.eval import main
    from swesmith.profiles.base import RepoProfile

    RepoProfile._is_repo_private = lambda self: False
    for row in json.loads(Path(args.dataset).read_text()):
        _profile(row)
    start = time.perf_counter()
    main(run_id=RUN, workers=args.workers, predictions_path=args.predictions, dataset_path=args.dataset)
    seconds = time.perf_counter() - start
    reports = Path("logs/run_evaluation", RUN).glob("*/report.json")
    return seconds, [{"instance_id": path.parent.name, **json.loads(path.read_text())} for path in reports]


def _profile(row: dict) -> None:
    """Registers a row's repository with swesmith, which names the image after the repository."""
    from swesmith.profiles.base import registry
    from swesmith.profiles.python import PythonProfile

    owner_of, _, rest = row["instance_id"].partition("__")
    repo_of, commit_of, _ = rest.rsplit(".", 2)
    if row["repo"] in registry.data:
        return

    @dataclass
    class ForgedProfile(PythonProfile):
        owner: str = owner_of
        repo: str = repo_of
        commit: str = commit_of
        test_cmd: str = row["test_cmd"]

    assert ForgedProfile().image_name == row["image_name"], (ForgedProfile().image_name, row["image_name"])
    registry.register_profile(ForgedProfile)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("harness", choices=["swebench", "swesmith"])
    for name in ("--dataset", "--predictions", "--output"):
        parser.add_argument(name, required=True)
    parser.add_argument("--workers", type=int, required=True)
    args = parser.parse_args()
    seconds, reports = {"swebench": swebench, "swesmith": swesmith}[args.harness](args)
    resolved = sorted(report["instance_id"] for report in reports if report.get("resolved"))
    summary = {"seconds": seconds, "resolved": resolved, "graded": len(reports)}
    Path(args.output).write_text(json.dumps(summary))


if __name__ == "__main__":
    main()
