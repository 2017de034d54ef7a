"""Our method and verl's on the same numbers, as a table: a program of verl's environment.

.venv-verl/bin/python -m tests.contract.verl_parity [--json]
"""

import json
import sys
from dataclasses import asdict

from swelab.rl.engines import verl_advantages
from tests.contract.verl_advantage_cases import of_failures, of_groups
from tests.contract.verl_loss_cases import (
    of_aggregations,
    of_bounds,
    of_divergences,
    of_mismatches,
    of_switches,
)

FAMILIES = (of_groups, of_failures, of_switches, of_bounds, of_aggregations, of_divergences, of_mismatches)


def main() -> None:
    verl_advantages.register()
    for case in (case for family in FAMILIES for case in family()):
        if "--json" in sys.argv:
            print(json.dumps(asdict(case)))
        else:
            print(f"| {case.part} | {case.name} | {case.apart:.1e} | {case.differs or 'the same'} |")


if __name__ == "__main__":
    main()
