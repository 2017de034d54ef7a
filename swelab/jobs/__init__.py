"""Parts of a workflow job: shards, journals, threads or Ray, child processes, manifests."""
