"""Adapters to engines that train on more than one machine; the embedded learner is `swelab.rl.learner`.

They turn a recipe into the engine's settings, and give it our rollouts, advantages and records. verl is a
program of an environment of its own (.venv-verl), which `verl_run` starts; modules that run inside it
import neither torchtune nor snakemake.
"""
