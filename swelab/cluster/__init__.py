"""The machines that jobs run on: the site file, SLURM, and the checks of a cluster and its nodes."""
