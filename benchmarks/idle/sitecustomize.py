"""Replaces agents, graders, pulls and training by functions that do nothing, in every process of a run.

Python imports this module when it starts, if PYTHONPATH has this folder. `benchmarks.workflow` sets
PYTHONPATH. All other code is the repository's own: scripts, shard runner, journals, schema checks, verdicts,
atomic writes. When a process ends, it appends {"script", "wall", "cpu", "peak_bytes"} to $SWELAB_IDLE_LOG
(seconds, bytes).
"""

import atexit
import json
import os
import resource
import sys
import time
from contextlib import nullcontext
from importlib.machinery import PathFinder

FILLER = " " + 4 * "observation"
"""The filler text that makes trajectories $SWELAB_IDLE_BYTES long."""
REPLACED = {}
"""Maps module -> {dotted attribute: function that replaces it after the module's import}."""


def replaces(module, name):
    def register(function):
        REPLACED.setdefault(module, {})[name] = function
        return function

    return register


class Finder:
    """Imports the modules of REPLACED as usual, and then replaces their attributes."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in REPLACED:
            return None
        spec = PathFinder.find_spec(name, path, target)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            for attribute, function in REPLACED[name].items():
                *parents, last = attribute.split(".")
                owner = module
                for parent in parents:
                    owner = getattr(owner, parent)
                getattr(owner, last)  # a missing name ends the run. Otherwise the real function would run
                setattr(owner, last, function)

        spec.loader.exec_module = exec_module
        return spec


@replaces("swelab.rollouts.rollout_stage", "attempt_task")
def attempt(task, *_, **__):
    """Returns a rollout that submitted in its first turn. Each task gets a different patch."""
    name = task["instance_id"]
    long = FILLER * (int(os.environ.get("SWELAB_IDLE_BYTES", "0")) // len(FILLER))
    turns = [("system", "Fix the bug."), ("user", task["problem_statement"] + long), ("assistant", name)]
    return {
        "instance_id": name,
        "outcome": "submitted",
        "model_patch": f"diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x\n+{name}\n",
        "messages": [{"role": role, "content": text} for role, text in turns],
        "info": {"exit_status": "Submitted", "submission": "", "model_stats": {}},
        "trajectory_format": "mini-swe-agent-1.1",
    }


@replaces("swelab.models.policy_models", "open_service")
def open_service(*_):
    """Opens no service, since no request is made."""
    return nullcontext()


@replaces("swelab.grading.grading_stage", "run_patch")
def run_patch(task, patch, *_, **__):
    """Returns evidence that tests passed, that they failed (empty patch), or that none ran (the bug)."""
    from swelab.grading.evidence import RunEvidence

    word = "PASSED" if patch else "FAILED"
    tests = [*task["FAIL_TO_PASS"], *task["PASS_TO_PASS"]]
    return RunEvidence(
        ended="not_applied" if patch == task["patch"] else "ran",
        reason="",
        findings=[],
        dynamic=[],
        echo="",
        guarded=False,
        log="".join(f"{test} {word}\n" for test in tests),
        code=0 if patch else 1,
        timed_out=False,
        sealed="",
        observed=None,
        seconds=0.0,
    )


@replaces("swelab.grading.validation.subset_lock", "find_leaks")
def find_leaks(*_):
    """Searches no image, since these images have no files."""
    return ()


@replaces("swelab.grading.validation.witness_stage", "make_witnesses")
def make_witnesses(tasks, *_):
    """Returns that no test is witnessed, without running anything."""
    from swelab.grading.evidence import WitnessRun

    standing = {"standing": "not_witnessed", "reason": "nothing is run"}
    return WitnessRun(standings={task["instance_id"]: standing for task in tasks}, packed={})


@replaces("swelab.images.pull", "Pulling.one")
def pull_record(_, text):
    """Returns the record of an image without files."""
    facts = {"bytes": 0, "folder": "", "workdir": "/testbed", "checked": 1, "leaks": []}
    from swelab.records.image_records import PulledImage

    digest = "sha256:" + text[-4:].encode().hex().zfill(64)
    return PulledImage(digest=digest, pulled="1970-01-01T00:00:00Z", **facts)


@replaces("swelab.files.weights", "identity")
def identity(_):
    """Returns hashes of a checkpoint without weights."""
    from swelab.files.weights import Checkpoint

    return Checkpoint(digest="0" * 64, files={})


@replaces("swelab.sft.train.preflight", "findings")
def findings(_):
    """Returns no findings, so that a training without weights may start."""
    return []


def make_tokenizer(_recipe, _world, folder):
    """Makes a model's folder that only has a ChatML tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        [FILLER * 100], trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet)
    )
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return {}, []


def fine_tune(_base, _dataset, _recipe, _work, checkpoint):
    """Makes a checkpoint without weights."""
    checkpoint.mkdir(parents=True)
    return {"digest": "0" * 64, "files": {}}, []


def publish_log(_work, _name, metrics):
    """Writes the log of a training without steps."""
    metrics.write_text("step\n")
    metrics.with_name("training.svg").write_text("<svg/>")
    metrics.with_name("tensorboard").mkdir(exist_ok=True)


class Training:
    """The functions that stand in for modules that would import torch."""

    World = staticmethod(lambda *_: None)
    make_base_model = staticmethod(make_tokenizer)
    fine_tune = staticmethod(fine_tune)
    publish_log = staticmethod(publish_log)


def peak_bytes():
    """Returns the peak resident memory since this program's exec, in bytes.

    Memory before the exec does not count.
    """
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def report(log, start):
    used = resource.getrusage(resource.RUSAGE_SELF)
    child = resource.getrusage(resource.RUSAGE_CHILDREN)
    line = {
        "script": sys.orig_argv[sys.orig_argv.index("-m") + 1] if "-m" in sys.orig_argv else "",
        "wall": time.time() - start,
        "cpu": used.ru_utime + used.ru_stime + child.ru_utime + child.ru_stime,
        "peak_bytes": peak_bytes(),
    }
    with open(log, "a") as stream:
        stream.write(json.dumps(line) + "\n")


if os.environ.get("SWELAB_IDLE_LOG"):
    sys.meta_path.insert(0, Finder)
    for module in ("train.training", "train.run_log", "demo_model.base_model", "demo_model.base_corpus"):
        sys.modules[f"swelab.sft.{module}"] = Training
    atexit.register(report, os.environ["SWELAB_IDLE_LOG"], time.time())
