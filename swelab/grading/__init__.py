"""Grading: gives a verdict on a patch.

`harness` runs one patch in one sandbox and judges it, `inside` runs in the sandbox, `validation`
decides which tasks are usable, `cheats` tries the grader with forged patches. Modules of this folder are the
stages and commands that use them. Nothing here knows an agent or a model.
"""
