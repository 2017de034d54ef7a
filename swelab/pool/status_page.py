"""Renders the status page of a pool as HTML without scripts."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from swelab.records import Record

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem }
table { border-collapse: collapse; display: block; overflow-x: auto; margin: .5rem 0 2rem }
th, td { white-space: nowrap; text-align: left; padding: .25rem 1.2rem .25rem 0 }
tr { border-bottom: 1px solid #ddd }
th { font-weight: 600; color: #555 }
"""
_MOST_ROWS = 500


def page(status: Record, leases: Sequence[Record]) -> str:
    """Returns HTML with the nodes, the queue and the first 500 leases."""
    counts = {name: value for name, value in status.items() if name != "nodes"}
    shown = ", ".join(f"{escape(name.replace('_', ' '))} {value}" for name, value in counts.items())
    more = f"<p>and {len(leases) - _MOST_ROWS} more</p>" if len(leases) > _MOST_ROWS else ""
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="10">'
        f'<meta name="viewport" content="width=device-width">'
        f"<title>Sandbox pool</title><style>{_STYLE}</style>"
        f"<h1>Sandbox pool</h1><p>{shown}</p>"
        f"<h2>Nodes</h2>{_table(status['nodes'])}<h2>Leases</h2>{_table(leases[:_MOST_ROWS])}{more}"
    )


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "<p>none</p>"
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(value))}</td>" for value in row.values()) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"
