"""Parts of a workflow job: shard, journal, threads or Ray, child processes, manifest."""
