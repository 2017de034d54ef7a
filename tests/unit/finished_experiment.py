"""Writes the results of a made-up experiment, true to the schemas, for the tests of scores and report.

Nothing was run: names, rates, losses and trajectories are drawn from a seed. One trajectory is
hostile: it tries to close the script element, to load a picture, and to hide text. So is one reason
for which validation dropped a task.
"""

import json
import math
import os
import random
from pathlib import Path

from swelab.configs import recipes
from swelab.console.job_runs import SUFFIX
from swelab.files.json_streams import Spool, write_object
from swelab.grading.evidence import RunEvidence
from swelab.grading.run_cache import Archive
from swelab.grading.swebench_report import build_report, validation
from swelab.jobs.provenance import Stage, manifest_path
from swelab.jobs.shards import sample_of, sample_suffix
from swelab.records import as_record, check, digest, read_records, write_json, write_jsonl
from swelab.records.attempt_records import Grade, Trajectory
from swelab.records.report_records import Report
from swelab.records.score_records import VerifiedScore
from swelab.records.task_records import Lock, Task
from swelab.rollouts.predictions import collect
from swelab.rollouts.token_usage import collect_usage, usage_of
from swelab.scores.score import read_usage, score
from swelab.scores.score_table import score_table
from swelab.scores.trail import trail_record
from swelab.scores.verified_score import load_score, score_experiment
from swelab.tasks.task_rows import read_tasks

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = {
    "config.yaml": "experiment: demo\n",
    "experiments/demo.yaml": (
        "expert: {policy: scripted, subsets: [drill-train, forge-train]}\nsft: demo\n"
        "policies: [base, sft]\nbenchmarks: [drill-heldout, forge-heldout]\ncompare: [base, sft]\n"
    ),
    "sft/demo.yaml": "{base: tiny, selection: {max_tokens: 1024}}\n",
    "models/tiny.yaml": (ROOT / "configs/models/tiny.yaml").read_text(),
    "policies/scripted.yaml": "{kind: scripted, scaffold: demo, shards: 2, seed: 7}\n",
    "policies/base.yaml": "{kind: checkpoint, scaffold: demo, weights: 'model:tiny'}\n",
    "policies/sft.yaml": "{kind: checkpoint, scaffold: demo, weights: 'sft:demo', shards: 2}\n",
}
OPERATORS = ("compare_swap", "constant_shift", "arith_swap", "bool_flip", "return_drop", "slice_edge")
REPOS = ("inflection", "natsort", "semver", "webcolors")
RATES = {"scripted": 0.86, "base": 0.03, "sft": 0.62}
HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    "<!-- <script> ]]> \u202eevitanretla\u202c \x1b[31mred\x1b[0m \x00 \ud800 https://example.invalid/x.png"
)
DROPPED = {
    "drill-heldout": {
        "flaky": [("the gold patch is resolved in 2 of 3 runs (1 tests do not pass: t::test_luck)", 2)],
        "broken": [("an empty patch is resolved", 3), (f"timeout: {HOSTILE}", 0)],
    },
    "forge-train": {"flaky": [], "broken": [("the gold patch is resolved in 0 of 3 runs", 0)] * 60},
}
"""Reasons for which validation drops tasks, with the number of resolved gold runs of each."""
REFUSAL = "Please answer with exactly one bash block."
TWO_BLOCKS = "First:\n\n```bash\nrm -rf build\n```\n\nthen:\n\n```bash\nls\n```"
"""A turn that the agent refuses because it has two commands."""
MACHINE = {"system": "Linux x86_64", "processor": "Made-up CPU", "cpus": 8, "memory_gib": 32, "gpus": []}
PATCH = """diff --git a/{path} b/{path}
--- a/{path}
+++ b/{path}
@@ -{line},3 +{line},3 @@ def {name}(left, right):
     limit = len(left)
-    if limit {old} right:
+    if limit {new} right:
         return left
"""


def make_task(subset: str, number: int, rng: random.Random) -> dict:
    repo, operator = rng.choice(REPOS), rng.choice(OPERATORS)
    name = rng.choice(("pluralize", "compare", "parse", "normalize_hex", "bump_minor"))
    line, path = rng.randrange(20, 300), f"{repo}/core.py"
    row = {
        "instance_id": f"swelab__{repo}.a1b2c3d4.func_pm_{operator}__{subset[:1]}{number:07x}",
        "repo": f"swelab/swelab__{repo}.a1b2c3d4",
        "patch": PATCH.format(path=path, line=line, name=name, old="<", new="<="),
        "problem_statement": (
            f"`{name}` in `{path}` gives a wrong answer.\n\n`tests/test_{repo}.py::test_{name}` fails:\n\n"
            f"    assert {name}('ab', 2) == 'ab'\n    E  AssertionError: assert 'a' == 'ab'\n\n"
            "Find the fault and mend it; the other tests pass and must go on passing."
        ),
        "FAIL_TO_PASS": [f"tests/test_{repo}.py::test_{name}"],
        "PASS_TO_PASS": [f"tests/test_{repo}.py::test_other[{k}]" for k in range(rng.randrange(3, 60))],
        "test_cmd": f"python -m pytest -rA --tb=no -q -p no:cacheprovider tests/test_{repo}.py",
    }
    row |= {"image_name": f"swelab/{repo}", "base_commit": "", "repo_recipe": repo, "op": operator}
    row |= {"source": subset.split("-")[0], "function": f"{path}::{name}"}
    return Task.of(row | {"hint": {"path": path, "line": line, "name": name}})


def draw_status(policy: str, subset: str, rng: random.Random) -> tuple[str, str]:
    """Returns status and outcome of one attempt."""
    rate = RATES[policy] * (0.6 if subset.startswith("forge") and policy == "sft" else 1)
    if rng.random() < rate:
        return "resolved", "submitted"
    failures = [
        ("unresolved", "submitted", 6),
        ("empty_patch", "step_limit", 3),
        ("empty_patch", "submitted", 2),
    ]
    if policy != "scripted":
        failures += [("empty_patch", "malformed", 3), ("apply_failed", "submitted", 0.5)]
        failures += [("timeout", "submitted", 0.5), ("infra_error", "model_lost", 0.2)]
    status, outcome, _ = rng.choices(failures, [weight for *_, weight in failures])[0]
    return status, outcome


def make_turns(task: dict, verdict: tuple[str, str], rng: random.Random) -> list[tuple[str, str]]:
    """Returns pairs of a command ("" for a malformed turn) and its observation."""
    (status, outcome), hint, repo = verdict, task["hint"], task["repo_recipe"]
    look = f"grep -n -A12 'def {hint['name']}' {hint['path']}"
    seen = "\n".join(f"{hint['line'] + k}-    value_{k} = left[{k}] + right" for k in range(12))
    if outcome == "step_limit":
        return [(look, f"exit 0\n{seen}\n" * rng.randrange(1, 30))] * rng.randrange(6, 20)
    if outcome == "malformed":
        return [("", REFUSAL)] * 3
    if outcome in ("model_lost", "sandbox_lost"):
        return []
    ran = f"exit 0\n{'.' * 40} [100%]\n" if status == "resolved" else "exit 1\n......F.... [100%]\n"
    return [
        (look, f"exit 0\n{hint['line']}:def {hint['name']}(left, right):\n{seen}\n"),
        (f"sed -i '{hint['line'] + 1}s/limit <= right/limit < right/' {hint['path']}", "exit 0\n"),
        (f"python -m pytest -qq --tb=no -p no:cacheprovider tests/test_{repo}.py", ran),
    ]


def make_messages(task: dict, policy: str, outcome: str, turns: list[tuple[str, str]]) -> list[dict]:
    """Returns the conversation. A model's turns have token counts, a script's turns do not."""
    messages: list[dict] = [
        {"role": "system", "content": "Fix the bug. Answer with one bash block."},
        {"role": "user", "content": task["problem_statement"]},
    ]
    for command, observation in turns:
        content = f"```bash\n{command}\n```" if command else TWO_BLOCKS
        extra = {"actions": [{"command": command}]} if command else {}
        answer = {"returncode": 0} if command else {"interrupt_type": "FormatError", "n_actions": 2}
        messages.append({"role": "assistant", "content": content, "extra": extra})
        messages.append({"role": "user", "content": observation, "extra": answer})
    if outcome == "submitted":
        command = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
        extra = {"actions": [{"command": command}]}
        messages.append({"role": "assistant", "content": f"```bash\n{command}\n```", "extra": extra})
        messages.append({"role": "exit", "content": "", "extra": {"exit_status": "Submitted"}})
    before = 0
    for message in messages:
        if message["role"] == "assistant" and policy != "scripted":
            usage = {"prompt_tokens": before // 3, "completion_tokens": len(message["content"]) // 3}
            usage |= {"reasoning_tokens": 7}
            message["extra"] |= {"usage": usage, "seconds": round(0.4 + before / 5000, 3)}
            message["reasoning_content"] = f"I have read {before} characters."
        if message["role"] == "user" and "returncode" in message.get("extra", {}) and policy != "scripted":
            message["extra"]["seconds"] = 0.25
        before += len(message["content"])
    return messages


def make_trajectory(task: dict, policy: str, subset: str, verdict: tuple[str, str], rng) -> dict:
    """Returns one rollout of `policy` that ends with `verdict` (status, outcome)."""
    (status, outcome), hint = verdict, task["hint"]
    turns = make_turns(task, verdict, rng)
    patch = PATCH.format(path=hint["path"], line=hint["line"], name=hint["name"], old="<=", new="<")
    row = {"instance_id": task["instance_id"], "policy": policy, "subset": subset, "outcome": outcome}
    row |= {"model_patch": patch if status not in ("empty_patch", "infra_error") else ""}
    row |= {"messages": make_messages(task, policy, outcome, turns)}
    row |= {"info": {"exit_status": outcome, "model_stats": {"api_calls": len(turns)}}}
    return row | {"trajectory_format": "mini-swe-agent-1.1"}


def make_grade(task: dict, policy: str, subset: str, verdict: tuple[str, str]) -> dict:
    status, outcome = verdict
    good, broken, others = status == "resolved", task["FAIL_TO_PASS"], task["PASS_TO_PASS"]
    said = {"infra_error": "the rollout ended as model_lost", "unresolved": "2 tests do not pass"}
    row = {"instance_id": task["instance_id"], "policy": policy, "subset": subset, "status": status}
    row |= {"resolved": good, "outcome": outcome, "reason": said.get(status, ""), "seconds": 1.5}
    grade = Grade.of(row)
    if status in ("resolved", "unresolved"):
        repaired = {"success": broken if good else [], "failure": [] if good else broken}
        held = {"success": others if good else others[1:], "failure": [] if good else others[:1]}
        grade["tests_status"] = {"FAIL_TO_PASS": repaired, "PASS_TO_PASS": held}
    return grade


def keep_log(results: Path, grade: dict) -> None:
    """Stores the test output of a failed attempt where the grader does, and names it in the grade."""
    if grade["status"] == "unresolved":
        grade["run"] = digest(grade)
        named = f"FAILED tests/test_core.py - AssertionError of {grade['instance_id']}"
        log = f"{'.' * 6000}\n{HOSTILE}\n{named}\n"
        Archive(results / "progress" / "runs").put(grade["run"], RunEvidence.of({"ended": "ran", "log": log}))


def note_jobs(results: Path, policy: str, subset: str, shard: str, seed: int) -> None:
    """Writes the run records of the jobs of a shard. The first shard's rollout was started twice."""
    for number, (rule, seconds) in enumerate((("rollout", 754.5), ("grade", 61.0))):
        path = results / "logs" / rule / policy / subset / f"{shard}{SUFFIX}"
        run = {"started": f"2026-03-0{1 + number}T09:30:00+00:00", "seconds": seconds + seed, "code": 0}
        run |= {"cpu_seconds": 100.0, "machine": MACHINE}
        again = [run | {"code": 130, "seconds": 5.0}] if shard.startswith("000of002") else []
        write_jsonl(path, [*again, run])


def make_lock(tasks: list[dict], flaky: list[dict], broken: list[dict]) -> dict:
    """Returns a lock of `tasks` after three runs of each gold patch. The dropped rows are not in it."""
    dropped = {row["instance_id"] for row in (*flaky, *broken)}
    kept = [
        {"instance_id": task["instance_id"], "task": digest(task), "place": "p", "seconds": 1.0}
        for task in tasks
        if task["instance_id"] not in dropped
    ]
    settings = {"gold_runs": 3, "together": True}
    lock = {"tasks_digest": digest(tasks), "total": len(tasks), "settings": settings}
    lock |= {"kept": kept, "flaky": flaky, "broken": broken}
    return as_record(lock, Lock, "made up")


def write_subset(results: Path, subset: str, size: int, seed: int) -> tuple[list[dict], dict]:
    """Writes tasks of which validation kept `size`, and their lock. Returns the kept tasks and the lock."""
    rng, reasons = random.Random(f"{seed} {subset}"), DROPPED.get(subset, {})
    tasks = [make_task(subset, k, rng) for k in range(size + sum(map(len, reasons.values())))]
    check(tasks[0], Task, "made up")
    rest = iter(tasks[size:])
    dropped: dict[str, list[dict]] = {"flaky": [], "broken": []}
    for part, rows in reasons.items():
        dropped[part] = [
            {"instance_id": next(rest)["instance_id"], "reason": reason, "gold_resolved": resolved}
            for reason, resolved in rows
        ]
    lock = make_lock(tasks, **dropped)
    write_json(results / "tasks" / f"{subset}.json", tasks)
    write_json(results / "tasks" / f"{subset}.lock.json", lock)
    write_json(results / "tasks" / f"{subset}.kept.json", tasks[:size])
    write_json(results / "tasks" / f"{subset}.manifest.json", {
        "rule": "make_tasks", "kept": len(tasks),
        "drops": {"no test fails": 41, "the fix does not restore all tests": 5},
    })  # fmt: skip
    return tasks[:size], lock


def write_run(results, policy, subset, tasks, lock, shards, seed, sample=0) -> dict:
    """Writes rollouts, grades and report of one policy's sample on one subset. Returns the report.

    Each model loses a task to infrastructure, and the script loses one of forge-train. Two of three tasks
    have the same result in a second sample.
    """
    rng = random.Random(f"{seed} {policy} {subset}")
    verdicts = {task["instance_id"]: draw_status(policy, subset, rng) for task in tasks}
    if sample:
        rng = random.Random(f"{seed} {policy} {subset} {sample}")
        again = {task["instance_id"]: draw_status(policy, subset, rng) for task in tasks}
        verdicts = {name: again[name] if rng.random() < 1 / 3 else verdicts[name] for name in verdicts}
    suffix = f"s{sample}" if sample else ""
    if policy != "scripted" or subset == "forge-train":
        verdicts[tasks[1]["instance_id"]] = ("infra_error", "model_lost")
    for shard in range(shards):
        name, mine = f"{shard:03d}of{shards:03d}{suffix}.jsonl", tasks[shard::shards]
        rows = [make_trajectory(task, policy, subset, verdicts[task["instance_id"]], rng) for task in mine]
        if shard == 0 and subset.endswith("heldout"):
            rows[0]["messages"][1]["content"] = HOSTILE
            turn = {"role": "assistant", "content": f"{HOSTILE}\n```bash\necho '{HOSTILE}'\n```"}
            turn |= {"extra": {"usage": {"prompt_tokens": 9, "completion_tokens": 9}}}
            rows[0]["messages"][2:2] = [turn, {"role": "user", "content": HOSTILE}]
            rows[0]["model_patch"] = HOSTILE
        grades = [make_grade(task, policy, subset, verdicts[task["instance_id"]]) for task in mine]
        for grade in grades:
            keep_log(results, grade)
        note_jobs(results, policy, subset, name.removesuffix(".jsonl"), shard)
        if sample:
            rows, grades = ([row | {"sample": sample} for row in each] for each in (rows, grades))
        for kind, records, folder in ((Trajectory, rows, "rollouts"), (Grade, grades, "grades")):
            for record in records[:3]:
                check(record, kind, "made up")
            write_jsonl(results / folder / policy / subset / name, records)
    grades = [make_grade(task, policy, subset, verdicts[task["instance_id"]]) for task in tasks]
    if sample:
        grades = [row | {"sample": sample} for row in grades]
    report = build_report(tasks, grades, policy, subset) | {"validation": validation(lock)}
    check(report, Report, "made up")
    write_json(results / "grades" / policy / subset / f"report{'.' * bool(sample)}{suffix}.json", report)
    return report


def selection_gates(rows, dropped):
    """Returns the gates of a selection that leaves `rows`.

    Too long ones are dropped at one gate, the rest at another.
    """
    long = {"too_long": dropped["too_long"]}
    others = {reason: count for reason, count in dropped.items() if reason != "too_long"}
    left = rows + long["too_long"]
    return [
        {"gate": "grade", "in": left + sum(others.values()), "out": left, "dropped": others},
        {"gate": "length", "in": left, "out": rows, "dropped": long},
    ]


def write_training(results: Path, rows: int, dropped: dict[str, int], seed: int) -> None:
    rng = random.Random(seed)
    for path, steps, start, end in (
        (results / "models/tiny.loss.jsonl", 900, 6.9, 1.1),
        (results / "sft/demo/loss.jsonl", 400, 1.4, 0.012),
    ):
        curve = [end + (start - end) * math.exp(-6 * step / steps) for step in range(steps)]
        write_jsonl(path, (
            {"step": step, "loss": round(loss * rng.uniform(0.8, 1.25), 5), "lr": 1e-3}
            for step, loss in enumerate(curve, 1)
        ))  # fmt: skip
    head = ["step", "loss", "lr", "grad_norm", "tokens_per_second", "mfu"]
    lines = [[step, 1.4 * math.exp(-step / 70) + 0.01, 1e-3, 2 / step + 0.1, 900 + step % 7, ""]
             for step in range(1, 401)]  # fmt: skip
    table = ["\t".join(map(str, line)) for line in (head, *lines)]
    (results / "sft/demo/metrics.tsv").write_text("\n".join(table) + "\n")
    write_json(results / "models/tiny.json", {
        "rule": "make_model", "digest": "b" * 64, "parameters": 871_000,
        "code": {"commit": "c0ffee" * 6 + "c0ff", "dirty": False}, "wall_seconds": 91.0,
    })  # fmt: skip
    write_json(results / "sft/demo/checkpoint.json", {
        "rule": "train", "digest": "d" * 64, "recipe": {"base": "tiny", "epochs": 3, "lr": 0.001},
        "code": {"commit": "c0ffee" * 6 + "c0ff", "dirty": False}, "wall_seconds": 184.2,
    })  # fmt: skip
    write_json(results / "sft/demo/dataset.manifest.json", {
        "rule": "build_sft_dataset", "trajectories": rows + sum(dropped.values()), "kept": rows,
        "dropped": dropped, "gates": selection_gates(rows, dropped), "rows": rows, "notes": {"split_rows": 2},
        "recipe": {"max_tokens": 1024, "over_long": "split"},
        "code": {"commit": "c0ffee" * 6 + "c0ff", "dirty": False}, "wall_seconds": 3.9,
    })  # fmt: skip
    table = ["instance_id\ttokens\tassistant_tokens\tturns\tfate"]
    table += [f"row-{k}\t{int(rng.gauss(420, 90))}\t90\t4\tkept" for k in range(rows)]
    table += [f"long-{k}\t1200\t90\t4\ttoo_long" for k in range(dropped["too_long"])]
    (results / "sft/demo/dataset.lengths.tsv").write_text("\n".join(table) + "\n")
    said = [{"role": "user", "content": "Mend it."}, {"role": "assistant", "content": "```bash\nls\n```"}]
    write_jsonl(results / "sft/demo/dataset.jsonl", (
        {"messages": said, "instance_id": f"row-{k}", "policy": "scripted", "resolved": True}
        for k in range(rows)
    ))  # fmt: skip
    write_json(results / "sft/demo/checkpoint/config.json", {"architectures": ["MadeUp"]})
    (results / "sft/demo/checkpoint/model.safetensors").write_bytes(rng.randbytes(64))


def usage_of_run(results: Path, policy: str, subset: str, sample: int) -> dict:
    """Returns tokens and cost by instance id of a written run."""
    paths = (results / "rollouts" / policy / subset).glob(f"*{f's{sample}' if sample else ''}.jsonl")
    rows = (row for _, row in read_records(paths, Trajectory))
    return {row.instance_id: usage_of(row) for row in rows if row.sample == sample}


def build(
    root: Path, train: int = 300, heldout: int = 120, seed: int = 0, samples: dict[str, int] | None = None
) -> None:
    """Writes configs/ and results/ of a finished experiment under `root`.

    samples: number of samples by policy.
    """
    samples = samples or {}
    for name, text in CONFIGS.items():
        path = root / "configs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for policy, count in samples.items():
        path = root / "configs/policies" / f"{policy}.yaml"
        path.write_text(path.read_text().replace("}", f", samples: {count}}}"))
    results, scores, resolved = root / "results", [], {}
    for subset in ("drill-train", "forge-train", "drill-heldout", "forge-heldout"):
        tasks, lock = write_subset(results, subset, train if subset.endswith("train") else heldout, seed)
        policies = {"scripted": 2} if subset.endswith("train") else {"base": 1, "sft": 2}
        for policy, shards in policies.items():
            count = range(samples.get(policy, 1))
            reports = [write_run(results, policy, subset, tasks, lock, shards, seed, each) for each in count]
            resolved[policy, subset] = sum(report["resolved_instances"] for report in reports)
            if policy != "scripted":
                path = results / "scores" / policy / f"{subset}.json"
                usage = [usage_of_run(results, policy, subset, each) for each in count]
                write_json(path, score(tasks, reports, policy, subset, usage))
                scores.append(path)
    kept = sum(count for (policy, _), count in resolved.items() if policy == "scripted")
    dropped = {"too_long": 7, "duplicate": 12}
    sides = {"instance_id": train, "function": 50, "bug": train}
    write_json(results / "disjoint/demo.json", {"disjoint": True, "train": sides, "heldout": sides})
    write_training(results, kept - 19, {"unresolved": 2 * train - kept, **dropped}, seed)
    write_verified(root, scores)


def write_verified(root: Path, scores: list[Path]) -> None:
    """Writes the verified score as a user in `root` would."""
    here = Path.cwd()
    os.chdir(root)
    try:
        manifests(scores)
        paths = [path.relative_to(root) for path in scores]
        used = {"policies": ["base", "sft"], "benchmarks": ["drill-heldout", "forge-heldout"]}
        used["compare"] = ["base", "sft"]
        weights = [Path("results/sft/demo/checkpoint.json")]
        stage = Stage("score_experiment", {"configs/experiments/demo.yaml": used}, scores=paths, also=weights)
        record = score_experiment([load_score(path) for path in paths], ("base", "sft"))
        record["manifest"] = trail_record(stage, paths, weights, "demo")
        check(record, VerifiedScore, "made up")
        write_json("results/verified_score.json", record)
    finally:
        os.chdir(here)


def manifests(scores: list[Path]) -> None:
    """Writes the manifest of each file behind some scores, as its stage would."""
    for path in scores:
        policy, subset = path.parent.name, path.stem
        made, lock = f"results/tasks/{subset}.json", f"results/tasks/{subset}.lock.json"
        tasks = {"tasks": f"results/tasks/{subset}.kept.json"}
        Stage("make_tasks").write([made])
        Stage("validate_tasks", tasks=made).write([lock, tasks["tasks"]])
        rollouts, grades = Path("results/rollouts", policy, subset), Path("results/grades", policy, subset)
        used = {f"configs/policies/{policy}.yaml": recipes.load_named("policy", policy)}
        reports = sorted(grades.glob("report*.json"))
        for sample, report in enumerate(reports):
            of_it = [path.name for path in sorted(grades.glob("*.jsonl")) if sample_of(path.stem) == sample]
            Stage("report_grades", **tasks, lock=lock, grades=[grades / name for name in of_it]).write(
                [report]
            )
            collected(rollouts, of_it, sample_suffix(sample), tasks)
            for shard in of_it:
                Stage("rollout", used, **tasks).write([rollouts / shard])
                Stage("grade", **tasks, trajectories=rollouts / shard).write([grades / shard])
        usage = sorted(rollouts.glob("usage*.json"))
        used = [dict(read_usage(each)) for each in usage]
        table = path.with_suffix(".csv")
        table.write_text(score_table(load_score(path), used))
        Stage("score", **tasks, report=reports, usage=usage).write([path, table])
    taught: dict[str, list[Path]] = {"trajectories": [], "grades": []}
    for subset in ("drill-train", "forge-train"):
        made, lock = f"results/tasks/{subset}.json", f"results/tasks/{subset}.lock.json"
        kept = f"results/tasks/{subset}.kept.json"
        counted = json.loads(manifest_path(made).read_text())
        Stage("make_tasks").write([made], kept=counted["kept"], drops=counted["drops"])
        Stage("validate_tasks", tasks=made).write([lock, kept])
        for grade in sorted(Path("results/grades/scripted", subset).glob("0*.jsonl")):
            rollout = Path("results/rollouts/scripted", subset, grade.name)
            Stage("rollout", tasks=kept).write([rollout])
            Stage("grade", tasks=kept, trajectories=rollout).write([grade])
            taught["trajectories"].append(rollout)
            taught["grades"].append(grade)
    Stage("make_base_model").write(["results/models/tiny.json"])
    manifest = Path("results/sft/demo/dataset.manifest.json")
    told = {key: fact for key, fact in json.loads(manifest.read_text()).items() if key != "rule"}
    rows = [f"results/sft/demo/dataset{end}" for end in (".jsonl", ".lengths.tsv")]
    Stage("build_sft_dataset", **taught).write(rows, manifest, **told)
    training = {"base": "results/models/tiny.json", "dataset": "results/sft/demo/dataset.lengths.tsv"}
    weights = sorted(Path("results/sft/demo/checkpoint").iterdir())
    Stage("train_sft", **training).write(["results/sft/demo/checkpoint.json", *weights])


def collected(folder: Path, shards: list[str], suffix: str, tasks: dict[str, str]) -> None:
    """Writes predictions and usage of one sample, and their manifest."""
    paths, usage = [folder / name for name in shards], {}
    stage = Stage("collect_predictions", **tasks, trajectories=paths)
    names = [task["instance_id"] for task in read_tasks(tasks["tasks"])]
    rows = collect_usage(read_records(paths, Trajectory), usage)
    write_object(folder / f"preds{suffix}.json", collect(rows, names, Spool(folder)))
    write_object(folder / f"usage{suffix}.json", sorted(usage.items()))
    stage.write([folder / f"preds{suffix}.json", folder / f"usage{suffix}.json"])
