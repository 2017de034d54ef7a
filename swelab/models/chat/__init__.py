"""Models as an agent sees them: served, hosted, scripted; their text and tool calls."""

import os

# Read by mini-swe-agent when it is imported: it says nothing, and keeps no settings in the user's home.
os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")
os.environ.setdefault("MSWEA_GLOBAL_CONFIG_DIR", os.path.dirname(os.path.abspath(__file__)))
