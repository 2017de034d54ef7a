"""Writes a policy's attempts on a benchmark as CSV, for spreadsheets and data frames."""

import csv
import io
from collections.abc import Sequence

from swelab.records import Record
from swelab.records.score_records import Score

USED = ("seconds", "calls", "prompt_tokens", "completion_tokens", "reasoning_tokens", "cost")
"""Columns from the attempt's usage; see `attempt_records.Usage`."""


def score_table(record: Score, usage: Sequence[Record] = ()) -> str:
    """Returns CSV with a heading and a line for each attempt, in the order of the score's instances.

    usage: for each sample, maps an instance id to its usage. A value that is not known is an empty cell.
    """
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["instance_id", "sample", "status", *USED])
    for name, verdict in record.instances.items():
        for sample, status in enumerate([verdict] if isinstance(verdict, str) else verdict):
            used = usage[sample].get(name, {}) if usage else {}
            rows.writerow([name, sample, status, *(used.get(column) for column in USED)])
    return text.getvalue()
