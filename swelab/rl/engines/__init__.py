"""Adapters to engines that train on more than one machine; the embedded learner is `swelab.rl.learner`.

They turn a recipe into the engine's settings, and give it our rollouts, advantages and records. `verl_run`
starts verl, which has its own environment (.venv-verl). Modules that run inside verl import neither torchtune
nor snakemake.
"""
