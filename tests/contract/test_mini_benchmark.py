"""mini-swe-agent's benchmark settings from the installed package: real sandbox, service over HTTP."""

from dataclasses import replace

import pytest
from jinja2 import StrictUndefined, Template

from swelab.agents.mini_benchmark import benchmark_loop, package_file
from swelab.configs import recipes
from swelab.configs.kinds import SCAFFOLD
from swelab.configs.kinds.scaffold import Limits, MiniSwebenchScaffold
from swelab.models.chat.served_models import ChatModel
from swelab.models.serving.server import Endpoint
from swelab.records import check
from swelab.records.attempt_records import Trajectory
from swelab.rollouts.rollout_stage import attempt_task
from swelab.tasks.checkout import RepoStore, gold_patch
from tests.contract.attacks import PATIENCE
from tests.contract.planned_model import KEY, as_block, as_calls, planned_model

# isort: split
# imported after our modules, which stop it from printing a greeting and from writing to the home folder
from minisweagent.models.utils.actions_toolcall import BASH_TOOL

pytestmark = pytest.mark.real
MARKER = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
SAMPLING = {"temperature": 0, "top_p": 1, "max_tokens": 64, "seed": 0}
COMMANDS = (
    "echo $PAGER $TQDM_DISABLE; pwd; seq 4000; echo '<end>'",
    "false",
    "sed -i 's/a - b/a + b/' calc/core.py; echo print > reproduce.py; git diff -- calc/core.py > patch.txt",
    f"echo {MARKER} && cat patch.txt",
)


FORMS = {"text": ("mini-swebench", as_block), "tool": ("mini-swebench-tool", as_calls)}


def rollout(task, repos_dir, backend, tmp_path, commands, form="text", tool="bash", **changes):
    """Returns the trajectory of a model that runs `commands`, one per turn, and the model's requests."""
    recipe, written = FORMS[form]
    scaffold = benchmark_loop(recipes.load_named(SCAFFOLD, recipe)).model_copy(update=changes)
    plan = [("THOUGHT: so.", tool, {"command": command}) for command in commands]
    with planned_model(plan, written) as service:
        model = ChatModel(Endpoint(service.url, KEY, "planned"), scaffold, SAMPLING)
        store = RepoStore(repos_dir, tmp_path / "trees")
        record = attempt_task(task, lambda task: model, store, backend, scaffold, tmp_path)
    check(record | {"policy": "p", "subset": "s"}, Trajectory, "row")
    return record, service.requests


@pytest.mark.parametrize("form", FORMS)
def test_every_setting_of_the_package_is_accounted_for(form):
    found = recipes.read_yaml(package_file(form))
    assert set(found) == {"agent", "environment", "model"}
    assert set(found["agent"]) == {"system_template", "instance_template", "step_limit", "cost_limit"}
    known = {"cwd", "timeout", "interpreter", "env", "environment_class"}
    assert set(found["environment"]) == known
    model = {"observation_template", "format_error_template", "model_name", "model_kwargs"}
    assert set(found["model"]) == model
    assert found["environment"]["cwd"] == "/testbed"
    assert found["environment"]["interpreter"] == ["bash", "-c"]
    several = {"parallel_tool_calls": True} if form == "tool" else {}
    assert found["model"]["model_kwargs"] == {"drop_params": True} | several
    scaffold = benchmark_loop(recipes.load_named(SCAFFOLD, FORMS[form][0]))
    assert scaffold.environment["PAGER"] == "cat" and "BASH_ENV" not in scaffold.environment
    assert (scaffold.step_limit, scaffold.cost_limit) == (250, 3)
    assert scaffold.limits.wall_seconds == 60 and scaffold.wall_seconds == 0
    for name in ("system_template", "instance_template"):
        assert getattr(scaffold, name) == found["agent"][name]
    for name in ("observation_template", "format_error_template"):
        assert getattr(scaffold, name) == found["model"][name]
    shorter = benchmark_loop(
        MiniSwebenchScaffold(agent="mini-swebench", form=form, wall_seconds=9, step_limit=3)
    )
    assert shorter.step_limit == 3 and shorter.wall_seconds == 9


@pytest.mark.parametrize("form", FORMS)
def test_the_prompts_are_the_package_s_and_the_patch_is_what_was_printed(
    form, task, repos_dir, backend, tmp_path
):
    record, requests = rollout(task, repos_dir, backend, tmp_path, COMMANDS, form)
    assert record["outcome"] == "submitted"
    store = RepoStore(repos_dir, tmp_path / "again")
    assert record["model_patch"] == gold_patch(store, task)  # neither patch.txt nor reproduce.py
    found = recipes.read_yaml(package_file(form))
    first, second, _, seen = requests[1]["messages"]
    render = {"undefined": StrictUndefined}
    issue = Template(found["agent"]["instance_template"], **render).render(task=task["problem_statement"])
    assert first["content"] == Template(found["agent"]["system_template"]).render()
    assert second["content"] == issue and task["problem_statement"] in issue
    printed = "cat 1\n/testbed\n" + "".join(f"{number}\n" for number in range(1, 4001)) + "<end>\n"
    output = {"output": printed, "returncode": 0, "exception_info": ""}
    wanted = Template(found["model"]["observation_template"], **render).render(output=output)
    assert seen["content"] == wanted and "characters elided" in wanted
    assert "<returncode>1</returncode>" in requests[2]["messages"][-1]["content"]


def test_calls_of_the_tool_are_answered_each(task, repos_dir, backend, tmp_path):
    commands = ["echo one\necho two; false", f"echo {MARKER}"]
    record, requests = rollout(task, repos_dir, backend, tmp_path, commands, "tool")
    assert record["outcome"] == "submitted"
    assert requests[0]["tools"] == [BASH_TOOL] and requests[0]["parallel_tool_calls"] is True
    turn, first, second = requests[1]["messages"][2:]
    assert [call["id"] for call in turn["tool_calls"]] == ["call_0_0", "call_0_1"]
    assert [(each["role"], each["tool_call_id"]) for each in (first, second)] == [
        ("tool", "call_0_0"),
        ("tool", "call_0_1"),
    ]
    assert "<returncode>0</returncode>" in first["content"] and "one" in first["content"]
    assert "<returncode>1</returncode>" in second["content"] and "two" in second["content"]
    assert record["messages"][2]["extra"]["actions"][1]["command"] == "echo two; false"


def test_a_refused_call_is_answered_in_the_package_s_words(task, repos_dir, backend, tmp_path):
    record, requests = rollout(task, repos_dir, backend, tmp_path, ["ls"], "tool", "frobnicate")
    assert record["outcome"] == "malformed" and len(requests) == 3
    turn, said = requests[1]["messages"][2:]
    assert turn == {"role": "assistant", "content": "THOUGHT: so."}
    assert said["role"] == "user" and "Unknown tool 'frobnicate'" in said["content"]
    refused = record["messages"][2]["extra"]["refused_calls"]
    assert refused[0]["function"]["name"] == "frobnicate"


def test_a_patch_that_was_not_kept_whole_is_none(task, repos_dir, backend, tmp_path):
    commands = [f"echo {MARKER}; seq 100000"]
    limits = Limits(output_bytes=4096, wall_seconds=PATIENCE, cpu_seconds=60)
    record, _ = rollout(task, repos_dir, backend, tmp_path, commands, limits=limits)
    assert record["outcome"] == "submitted" and record["model_patch"] == ""


class OnlySleepIsLong:
    """The backend with a long wall time for every command except sleep."""

    def __init__(self, backend):
        self.backend = backend

    def start(self, tree, **options):
        sandbox = self.backend.start(tree, **options)
        run = sandbox.exec

        def bounded(command, *, env=None, limits=None):
            kept = limits if limits is None or "sleep" in command else replace(limits, wall_seconds=PATIENCE)
            return run(command, env=env, limits=kept)

        sandbox.exec = bounded
        return sandbox


def test_a_command_that_runs_too_long_is_told(task, repos_dir, backend, tmp_path):
    limits, commands = Limits(wall_seconds=0.5, cpu_seconds=60), ["sleep 600", f"echo {MARKER}"]
    record, _ = rollout(task, repos_dir, OnlySleepIsLong(backend), tmp_path, commands, limits=limits)
    assert (
        "<exception>the command was stopped at its wall limit</exception>" in record["messages"][3]["content"]
    )
    assert record["outcome"] == "submitted"
