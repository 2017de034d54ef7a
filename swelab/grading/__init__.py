"""Decides whether a patch resolves its task.

`harness` runs one patch in one sandbox and judges it. `inside` is the code that runs in the sandbox.
`validation` decides which tasks are usable. `cheats` tests the grader with forged patches. The modules of
this folder are the stages and commands that use these packages. Nothing here depends on an agent or a model.
"""
