"""Scores, and the pages that show them.

`statistics` has the intervals and tests, `report` writes the page. Modules of this folder make scores, follow
their trail of files and verify it.
"""
