"""Refuses a command whose target no rule makes. Included last: it looks at all rules.

in:  the command line
out: nothing, or one line that names the nearest target
"""

import contextlib
import io

from snakemake.cli import parse_args
from swelab.targets import check_targets


def refuse_unknown_targets():
    """Ends with one line when the command names a target that no rule makes; Snakemake does not say which name."""
    if not workflow.is_main_process or os.path.basename(sys.argv[0]) != "snakemake":
        return
    with contextlib.redirect_stderr(io.StringIO()):  # it tells of the profile once more
        targets = parse_args(sys.argv[1:])[1].targets
    try:
        check_targets(targets, list(workflow.rules))
    except Fault as fault:
        print(f"error: {fault}", file=sys.stderr)
        sys.exit(2)


refuse_unknown_targets()
