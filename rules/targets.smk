"""Checks the command line: targets, forced rules, API keys. Included last, because it reads all rules.

in:  the command line, the environment
out: nothing, or one line that names the nearest target, or the key that is missing
"""

import contextlib
import io

from snakemake.cli import parse_args
from swelab.configs.targets import check_targets, with_variants
from swelab.lineage import find

OUTPUTS = {
    name: list(kind.files.values())
    for kind in KINDS.values()
    for name in kind.rules.split()
}


def refuse_unknown_targets():
    """Ends with one line if the command names a target that no rule makes; Snakemake does not tell which name
    is wrong."""
    if not workflow.is_main_process or os.path.basename(sys.argv[0]) != "snakemake":
        return
    # Parsing again would name the profile a second time.
    with contextlib.redirect_stderr(io.StringIO()):
        targets = parse_args(sys.argv[1:])[1].targets
    try:
        check_targets(targets, list(workflow.rules), OUTPUTS, find)
    except Fault as fault:
        print(f"error: {fault}", file=sys.stderr)
        sys.exit(2)


refuse_unknown_targets()


def name_variants():
    """Starts the command again with all variants of its rules: --forcerun rollout also means rollout_hosted.

    Snakemake reads its options before it reads the rules, so they cannot be changed later.
    """
    if not workflow.is_main_process or os.path.basename(sys.argv[0]) != "snakemake":
        return
    words = with_variants(sys.argv[1:], [kind.rules.split() for kind in KINDS.values()])
    if words != sys.argv[1:]:
        os.execv(sys.executable, [sys.executable, sys.argv[0], *words])


name_variants()


def acting_policy(job):
    """(name, recipe) of the policy whose model a job queries; None for other jobs."""
    names = dict(job.wildcards.items())
    if job.rule.name.startswith("rate_difficulty"):
        names = {"policy": recipes.load_named(kinds.RATER, names["rater"]).policy}
    elif not job.rule.name.startswith("rollout"):
        return None
    return names["policy"], recipes.load_named(kinds.POLICY, names["policy"])


def require_keys():
    """Ends with one line if a planned job needs a key that is not in the environment, or a cluster that does
    not exist."""
    try:
        if SITE and workflow.dag.needrun_jobs():
            require_controller()
        for job in workflow.dag.needrun_jobs():
            if acting := acting_policy(job):
                check_keys(*acting)
    except Fault as fault:
        print(f"error: {fault}", file=sys.stderr)
        sys.exit(2)
