"""Models in the form that agents use: served, hosted or scripted, with turns as text or tool calls."""

import os

# Environment variables for the import of mini-swe-agent: it prints nothing, and writes no settings to the
# user's home.
os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")
os.environ.setdefault("MSWEA_GLOBAL_CONFIG_DIR", os.path.dirname(os.path.abspath(__file__)))
