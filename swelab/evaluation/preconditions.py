"""Checks that an evaluation has everything that it needs, before money is spent. Each finding says what to
do."""

import json
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from swelab import machine
from swelab.agents.agent import loop_of, open_agent
from swelab.checks.checkup import check_disk
from swelab.checks.finding import Finding, Severity, fix, low, ok
from swelab.checks.probes import ask, check_sandboxes
from swelab.configs.experiment import key_variables
from swelab.configs.kinds.policy import HostedPolicy
from swelab.configs.kinds.scaffold import Scaffold, SweAgentScaffold
from swelab.evaluation.evaluation_plan import Plan
from swelab.files.weights import check_weights, weight_files
from swelab.images.image_names import image_name
from swelab.machine import GIB, gib
from swelab.models.billing.api_keys import read_keys
from swelab.models.chat.hosted import fields_for
from swelab.models.chat.litellm_calls import complete
from swelab.models.chat.litellm_errors import read_fault
from swelab.models.service_words import Kind
from swelab.records import Fault, InputError, Record, shorten
from swelab.records.task_records import Task
from swelab.sandbox import backend_name
from swelab.tasks.task_images import unusable_tasks

WORD = [{"role": "user", "content": "Answer with one word: ready"}]
CALL = [{"role": "user", "content": "Call the tool bash with the command `true`. Answer with nothing else."}]
ADVICE = {
    Kind.KEY: "give another key by --api-key-env",
    Kind.QUOTA: "pay, or give another key by --api-key-env",
    Kind.WRONG: "correct --model, --api-base or the settings",
    Kind.BUSY: "the evaluation will wait for it",
    Kind.PASSING: "look into the service's log, or try again later",
}
"""Maps why a service gave no answer to what a person can do."""
PROMPT_TOKENS = 3000
"""Upper bound for the tokens of the prompts in SWE-agent's configurations."""
CHARS_PER_TOKEN = 4


def look(plan: Plan, tasks: Sequence[Task]) -> Iterator[Finding]:
    """Checks the sandboxes, the disk, the images, and the model or its service. Makes at most two short paid
    calls."""
    yield check_sandboxes(backend_name())
    yield check_disk(plan.folder)
    yield from images(plan, tasks)
    policy = plan.policy
    if isinstance(policy, HostedPolicy):
        yield from service(plan, policy, tasks)
    elif policy.kind == "checkpoint" and not policy.endpoint and Path(policy.weights).is_dir():
        yield from weights(Path(policy.weights), policy.context_length, policy.sampling.max_tokens)


def images(plan: Plan, tasks: Sequence[Task]) -> Iterator[Finding]:
    """Reports how many images the tasks need, and how many tasks have no usable image in the plan's image
    record."""
    in_images = [task for task in tasks if task.in_image]
    if not in_images:
        return
    count = len({image_name(task) for task in in_images})
    if plan.images is None:
        where = plan.image_store or plan.progress / "images"
        yield ok(f"images: {count} are needed; those that are not in {where} or the engine are pulled first")
        return
    try:
        missing = unusable_tasks(in_images, plan.images)
    except InputError as fault:
        yield fix(f"images: {fault}")
        return
    text = f"images: {count} in {plan.images}; {len(missing)} tasks have no usable image"
    yield low(text) if missing else ok(text)


def service(plan: Plan, policy: HostedPolicy, tasks: Sequence[Task]) -> Iterator[Finding]:
    """Checks that a service completes a prompt, calls tools if the scaffold needs them, and has a long enough
    context."""
    key = read_keys(key_variables(policy))[0].secret
    longest = None
    if policy.api_base:
        finding, entry = listing(policy.api_base, policy.model, key)
        longest = entry.get("max_model_len")
        yield finding
        if finding.severity == Severity.FIX:
            return
    finding, _ = completion(policy, key, WORD, {})
    yield finding
    if finding.severity != Severity.OK:
        return
    scaffold = plan.scaffold
    if not isinstance(scaffold, SweAgentScaffold):
        loop = loop_of(scaffold)
        form = open_agent(loop.agent).form(loop)
        if form.calls and not form.in_text:
            yield tools(*completion(policy, key, CALL, form.offered), plan.scaffold_name)
    if isinstance(longest, int):
        yield context(longest, policy.sampling.max_tokens, own_words(scaffold), tasks)


def listing(base: str, model: str, key: str | None) -> tuple[Finding, Record]:
    """Returns (finding about the service's list of models, the list's entry for this model or {})."""
    try:
        answer = ask(base, "/models", key)
    except Fault as fault:
        return fix(f"endpoint: {fault}; start it, or correct --api-base"), {}
    status = answer.status_code
    if status in (401, 403):
        return fix(f"endpoint: {base} refuses the key ({status}); give another one by --api-key-env"), {}
    trial = "a completion is tried all the same"
    try:
        rows = {str(row["id"]): row for row in answer.json()["data"]}
    except (ValueError, KeyError, TypeError):
        return low(f"endpoint: {base} lists no models ({status}); {trial}"), {}
    name = model.partition("/")[2]
    if name in rows:
        return ok(f"endpoint: {base} serves {name}"), dict(rows[name])
    others = shorten(", ".join(rows)) or "none"
    only = dict(next(iter(rows.values()))) if len(rows) == 1 else {}
    return low(f"endpoint: {base} does not list {name}, but {others}; {trial}"), only


def completion(
    policy: HostedPolicy, key: str | None, messages: list[Record], offer: Record
) -> tuple[Finding, Any]:
    """Makes one real completion. Returns (finding, answer or None). offer: request fields that offer
    tools."""
    most = min(policy.sampling.max_tokens, 256)
    try:
        fields, _ = fields_for(policy.model, policy.sampling, policy.api_base)
        fields |= {"max_tokens": most, **offer}
        answer = complete(policy.model, messages, key, policy.api_base, fields)
    except InputError as error:
        return fix(f"completion: {error}"), None
    except Exception as error:  # LiteLLM does not wrap all exceptions
        fault = read_fault(error, key)
        severity = Severity.LOW if fault.kind == Kind.BUSY else Severity.FIX
        advice = ADVICE.get(fault.kind, ADVICE[Kind.PASSING])
        text = f"completion: {policy.model}: {fault.words}: {fault.kind.words}; {advice}"
        return Finding(severity, text), None
    if not getattr(answer, "choices", None):
        return fix(f"completion: {policy.model} answers without a choice"), None
    usage = getattr(answer, "usage", None)
    tokens = (
        f", {usage.prompt_tokens} + {usage.completion_tokens} tokens" if usage else ", it reports no tokens"
    )
    return ok(f"completion: {policy.model} answers{tokens}"), answer


def tools(finding: Finding, answer: Any, scaffold: str) -> Finding:
    """Checks that the answer to the prompt CALL contains a tool call.

    finding: the finding about that answer.
    """
    if finding.severity != Severity.OK:
        return fix(f"tools: {finding.sentence.removeprefix('completion: ')}; {scaffold} needs them")
    if getattr(answer.choices[0].message, "tool_calls", None):
        return ok("tools: the model calls them")
    advice = "start the server with the model's tool-call parser, or use --scaffold mini-swebench (text)"
    return fix(f"tools: the model was asked to call bash and did not; {advice}")


def own_words(scaffold: Scaffold) -> int:
    """Returns the approximate number of tokens in a scaffold's first messages and tools, without the task."""
    if isinstance(scaffold, SweAgentScaffold):
        return PROMPT_TOKENS
    loop = loop_of(scaffold)
    tools = json.dumps(open_agent(loop.agent).form(loop).offered)
    return len(loop.system_template + loop.instance_template + tools) // CHARS_PER_TOKEN


def context(longest: int, answer: int, words: int, tasks: Sequence[Task]) -> Finding:
    """Checks that prompts and answers fit into the model's context. longest: length of the context in tokens.
    answer: maximum tokens of an answer. words: tokens of a prompt without the task."""
    if answer >= longest:
        return fix(f"context: {longest} tokens, and --max-tokens is {answer}; lower it")
    room = longest - answer - words
    big = sum(len(task.problem_statement) / CHARS_PER_TOKEN > room for task in tasks)
    text = f"context: {longest} tokens, {answer} of them for an answer"
    if big:
        return low(f"{text}; about {big} of {len(tasks)} problem statements leave no room")
    return ok(text)


def weights(folder: Path, context_length: int, answer: int) -> Iterator[Finding]:
    """Checks that the weights in a folder are complete and can be served on this machine."""
    try:
        check_weights(folder)
    except InputError as error:
        yield fix(f"weights: {error}")
        return
    size = sum(path.stat().st_size for path in weight_files(folder))
    yield ok(f"weights: {folder}, {gib(size)}, context {context_length}")
    if answer >= context_length:
        yield context(context_length, answer, 0, ())
    gpus = machine.gpus()
    memory = sum(gpu.total for gpu in gpus)
    if not gpus:
        yield low("GPUs: none; served on the CPU, slowly")
    elif size > memory:
        yield fix(f"GPUs: {memory / GIB:.0f} GiB for weights of {size / GIB:.0f} GiB")
    else:
        yield ok(f"GPUs: {len(gpus)} GPUs, {memory / GIB:.0f} GiB")
    if find_spec("sglang") is None:
        yield fix("sglang: it is not installed here; see docs/serving.md, or serve elsewhere")
