"""Scores and what is shown of them.

`statistics` has the intervals and tests, `report` writes the page. Modules of this folder make scores, follow
their trail of files and verify it.
"""
