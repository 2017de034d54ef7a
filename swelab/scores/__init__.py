"""Scores, and the pages that show them.

`statistics` has the intervals and tests, `report` writes the page. Modules of this folder make scores, find
the files behind a score and verify them.
"""
