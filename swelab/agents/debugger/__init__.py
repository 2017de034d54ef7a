"""The agent `debugger`: tools to read, edit and run a task's code, and a live pdb session among them.

`debugger` is the entry, `environment` executes the calls, `definitions` describes the tools to the model. The
agent uses only the protocols of models and sandboxes, and runs code of ours in a sandbox (`inside`).
"""
