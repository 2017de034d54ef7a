#!/bin/sh
# Snakemake runs this inside the new environment, from the root of the workflow.
set -eu
python -m pip install -r envs/torch.txt
python -m pip install --no-deps -r envs/cpu.txt
