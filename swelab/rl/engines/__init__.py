"""Adapters to engines that train on more than one machine. The embedded learner is `swelab.rl.learner`.

An adapter converts a recipe to the engine's settings, and gives the engine our rollouts, advantages and
records. `verl_run` starts verl, which has its own environment (.venv-verl). Modules that run inside verl
import neither torchtune nor snakemake.
"""
