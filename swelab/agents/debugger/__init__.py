"""The agent `debugger`: tools to read, edit and run a task's code, including a live pdb session.

`debugger` is the entry point, `environment` executes the calls, and `definitions` describes the tools to the
model. The agent uses only the protocols of models and sandboxes. It runs our code in a sandbox (`inside`).
"""
