"""Images: resolves names to digests, pulls each image once, and unpacks it for backends without an engine."""
