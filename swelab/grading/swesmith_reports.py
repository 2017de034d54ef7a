"""Writes a run's folder in the layout of SWE-smith's harness: one report per instance, one for the run.

The files are `<run>/<id>/report.json`, `patch.diff` and `test_output.txt`, and `<run>/report.json`. As in
that harness, an instance without a verdict has no report of its own: the run's report lists its id.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from swelab.outcomes import LOST_GRADES, GradeEnd
from swelab.records import InputError, Record, read_json, write_bytes, write_json
from swelab.records.attempt_records import Grade, Prediction
from swelab.tasks.patch_application import encode_patch

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@=-]*")
NEVER = ("FAIL_TO_FAIL", "PASS_TO_FAIL")


def run_folder(logs: Path, run_id: str) -> Path:
    """Returns the folder of a run. Raises InputError if `run_id` cannot be a folder name."""
    if not RUN_ID.fullmatch(run_id):
        raise InputError("not a run id", repr(run_id), "letters, digits and . _ + @ = -")
    return logs / run_id


def instance_report(grade: Grade, prediction: Prediction, seconds: int) -> Record | None:
    """Returns our grade as the harness's report of an instance, or None if the patch has no verdict."""
    if grade.status in LOST_GRADES:
        return None
    if grade.status == GradeEnd.TIMEOUT:
        return {"timed_out": True, "timeout": seconds, "model_name_or_path": prediction.model_name_or_path}
    report: Record = {"patch_exists": prediction.model_patch is not None, "resolved": grade.resolved}
    if tests := grade.tests_status:
        report["tests_status"] = {**tests, **{name: {"success": [], "failure": []} for name in NEVER}}
    report["model_name_or_path"] = prediction.model_name_or_path
    return report | {"status": grade.status, "reason": grade.reason}


def write_instance(folder: Path, report: Record | None, patch: str | None, log: str) -> None:
    """Writes the report, patch and test log of an instance. Removes files that an earlier run left."""
    if report is None:
        (folder / "report.json").unlink(missing_ok=True)
    for name, data in (
        ("patch.diff", encode_patch(patch or "")),
        ("test_output.txt", log.encode("utf-8", "backslashreplace")),
    ):
        if data:
            write_bytes(folder / name, data)
        else:
            (folder / name).unlink(missing_ok=True)
    if report is not None:
        write_json(folder / "report.json", report)


def run_report(folder: Path, predictions: Mapping[str, Prediction], unknown: Iterable[str]) -> Record:
    """Returns the report of a run over its predictions, from the reports of the instances.

    The harness's fields are {"resolved", "unresolved", "total", "ids_resolved", "ids_unresolved"}. Our own
    fields are `ids_lost`, instances without a verdict, and `ids_unknown`, predictions without a task.
    """
    ids: dict[str, list[str]] = {"ids_resolved": [], "ids_unresolved": [], "ids_lost": []}
    strangers = sorted(unknown)
    for name in sorted(set(predictions) - set(strangers)):
        path = folder / name / "report.json"
        if not path.is_file():
            ids["ids_lost"].append(name)
        else:
            ids["ids_resolved" if read_json(path).get("resolved") else "ids_unresolved"].append(name)
    return {
        "resolved": len(ids["ids_resolved"]),
        "unresolved": len(ids["ids_unresolved"]),
        "total": len(predictions),
        **ids,
        "ids_unknown": strangers,
    }
