"""The machines that jobs run on: the site file, SLURM, and the checks of a laptop and of a cluster."""
