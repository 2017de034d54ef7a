"""The agent `debugger`: tools to read, edit and run a task's code, and a live pdb session among them.

`debugger` is its entry and `environment` carries out its calls; `definitions` are the tools as a model sees
them. It may use the two protocols of models and sandboxes, and runs code of ours inside a sandbox (`inside`).
"""
