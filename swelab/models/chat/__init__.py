"""Models as an agent sees them: served, hosted, scripted; their text and tool calls."""
