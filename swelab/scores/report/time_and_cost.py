"""Sections of the report on time and cost: when, where and how long stages ran, and cost of attempts."""

from datetime import datetime
from html import escape

from swelab.scores.report.intervals import all_scores
from swelab.scores.report.markup import mute, note, table
from swelab.scores.report.report_data import ReportData
from swelab.scores.report.stage_times import StageRuns

VERBS = {
    "build_repo": "Build the repository",
    "make_tasks": "Make the tasks",
    "fetch_tasks": "Fetch the tasks",
    "pull_images": "Pull the images",
    "build_sandbox_image": "Build the sandbox image",
    "validate_tasks": "Validate the tasks",
    "check_disjoint": "Check that train and held-out tasks differ",
    "make_base_model": "Make the base model",
    "fetch_model": "Fetch the model",
    "unpack_trajectories": "Unpack recorded trajectories",
    "rollout": "Attempt the tasks",
    "collect_predictions": "Collect the patches",
    "grade": "Run the tests on the patches",
    "report_grades": "Count the verdicts",
    "submit_predictions": "Have the service judge the patches",
    "build_sft_dataset": "Select the training rows",
    "build_sft_pairs": "Select the training pairs",
    "preflight": "Check memory and disk for training",
    "train_sft": "Fine-tune the model",
    "score": "Score",
    "score_experiment": "Compare the scores",
}


MEANING = (
    "Time is the sum over a stage's jobs, which may have run at the same time. A job that was started "
    "again counts each time. Cost is the charge of the model's service; a model that is served here has "
    "no cost. A dash means that nothing was recorded."
)


def stages(evidence: ReportData) -> str:
    """Returns a table of all stages with recorded runs, and of the machines that ran them."""
    if not evidence.jobs:
        return note(
            "No run of a job is recorded: these results were made before runs were recorded.", warns=True
        )
    machines = list(dict.fromkeys(name for stage in evidence.jobs for name in stage.machines))
    rows = [row_of(stage, machines, evidence) for stage in evidence.jobs]
    head = ["Stage", "On", "Began (UTC)", "Jobs", "Time", "CPU time", "Tokens", "Cost"]
    head += ["Machine"] if len(machines) > 1 else []
    first, last = min(stage.began for stage in evidence.jobs), max(stage.ended for stage in evidence.jobs)
    whole = duration((last - first).total_seconds())
    busy = duration(sum(stage.seconds for stage in evidence.jobs))
    named = "; ".join(f"{place(number, machines)}{escape(name)}" for number, name in enumerate(machines, 1))
    told = note(
        f"From {day(first)} to {day(last)} UTC: {whole} from first to last, {busy} of jobs' time together. "
        f"Machine: {named}."
    )
    text = (0, 1, 2, len(head) - 1) if len(machines) > 1 else (0, 1, 2)
    return told + table(head, rows, "Stages, in the order in which they started", text) + note(MEANING)


def row_of(stage: StageRuns, machines: list[str], evidence: ReportData) -> list[str]:
    """Returns the table cells of a stage."""
    count = f"{len(stage.jobs):,}"
    if stage.runs > len(stage.jobs):
        count += mute(f" in {stage.runs:,} runs, {stage.failed:,} failed")
    used = stage.usage
    sent, written, cost = (used.get(name) for name in ("prompt_tokens", "completion_tokens", "cost"))
    where = ", ".join(str(machines.index(name) + 1) for name in stage.machines)
    return [
        escape(VERBS.get(stage.rule, stage.rule.replace("_", " "))),
        " on ".join(escape(evidence.label(name)) for name in stage.names if name != "all"),
        day(stage.began),
        count,
        duration(stage.seconds),
        duration(stage.cpu_seconds),
        mute("\u2013") if sent is None or written is None else f"{sent + written:,}",
        mute("\u2013") if cost is None else f"${cost:,.2f}",
        *([where] if len(machines) > 1 else []),
    ]


def place(number: int, machines: list[str]) -> str:
    """Returns the number of a machine, if there are several machines."""
    return f"{number}: " if len(machines) > 1 else ""


def day(moment: datetime) -> str:
    """Formats a date and time of day."""
    return f'<span class="nowrap">{moment:%Y-%m-%d %H:%M}</span>'


def duration(seconds: float) -> str:
    """Formats seconds for a person: 4.2 s, 3 min 10 s, 2 h 5 min."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def costs(evidence: ReportData) -> str:
    """Returns tokens and dollars of every policy on every benchmark, or '' if no usage was recorded."""
    rows = []
    for name, policy in all_scores(evidence):
        if used := policy.usage:
            tokens = [used.prompt_tokens, used.completion_tokens, used.tokens_per_resolved]
            dollars = [used.cost, used.cost_per_resolved]
            cells = ["n/a" if value is None else f"{round(value):,}" for value in tokens]
            if used.reasoning_tokens:
                cells[1] += mute(f" ({used.reasoning_tokens:,} thoughts)")
            rows.append(
                [
                    name,
                    f"{used.attempts:,}",
                    *cells,
                    *("n/a" if value is None else f"${value:,.2f}" for value in dollars),
                    f"{used.seconds / used.seconds_known:,.1f} s"
                    if used.seconds and used.seconds_known
                    else "n/a",
                ]
            )
    head = ["Run", "Attempts", "Tokens sent", "Written", "Tokens per resolved", "Cost", "Cost per resolved"]
    head.append("Mean time")
    told = table(head, rows, "Tokens, cost and time of attempts, and per resolved attempt") if rows else ""
    return told and told + note(
        "Tokens sent are counted at every call, cached or not. The mean time is of attempts whose time is "
        "known. n/a: not recorded for every attempt, no known price, or no resolved attempt."
    )
