"""Images: resolved to digests, pulled once, unpacked for backends without an engine."""
