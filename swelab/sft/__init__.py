"""Supervised fine-tuning. Nothing here uses a sandbox or the network.

`rows` makes training rows from graded trajectories. `train` runs a trainer on them. `demo_model` makes the
small base model of the demo.
"""
