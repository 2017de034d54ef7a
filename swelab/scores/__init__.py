"""Makes scores, finds the files behind a score, and verifies them.
`statistics` has the intervals and tests. `report` writes the page that shows a score."""
