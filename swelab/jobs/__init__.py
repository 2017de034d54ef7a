"""How a job of the workflow works: shard, journal, threads or Ray, child processes, manifest."""
