"""verl's processes import few of our modules. test_verl.py checks the same in verl's environment."""

import subprocess
import sys

INSIDE = "verl_workplace verl_order verl_tokens verl_machine verl_head verl_node"
HEAVY = "torchtune snakemake trl sglang datasets"


def test_what_runs_inside_of_verl_imports_no_trainer_and_no_workflow():
    names = ", ".join(f"swelab.rl.engines.{name}" for name in INSIDE.split())
    line = f"import sys, {names}; print([n for n in '{HEAVY}'.split() if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
