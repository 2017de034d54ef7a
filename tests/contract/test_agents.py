"""The interface of agents: mini-swe-agent, and a second agent that has a debugger as a tool."""

import json
from contextlib import closing

import pytest

from swelab.agents.agent import AGENTS, loop_of, open_agent
from swelab.agents.mini import Mini, SandboxEnvironment, run_rollout
from swelab.configs import recipes
from swelab.configs.kinds import SCAFFOLD
from swelab.models.chat.text_model import TextModel
from swelab.models.chat.turn_form import CalledForm
from swelab.rollouts.rollout_stage import attempt_task
from swelab.tasks.checkout import RepoStore
from tests.conftest import ROOT

pytestmark = pytest.mark.real
DEMO = ROOT / "configs/scaffolds/demo.yaml"
PDB = b"(Pdb) "
PDB_TOOL = {"type": "function", "function": {"name": "pdb", "parameters": {"type": "object"}}}
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class PdbForm(CalledForm):
    """Calls of `bash` and of `pdb`, whose argument is one line."""

    offered = {"tools": [*CalledForm.offered["tools"], PDB_TOOL]}

    def parse(self, content, calls, finish_reason):
        told = [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls]
        return [{"tool_call_id": id, "tool": tool, **json.loads(arguments)} for id, tool, arguments in told]


class Debugging(SandboxEnvironment):
    """Runs commands as mini does, and a debugger that lives as long as the rollout."""

    session = None

    def execute(self, action, cwd=""):
        if action["tool"] == "bash":
            return super().execute(action)
        if self.session is None:
            self.session = self.sandbox.session("python -m pdb probe.py", limits=self.limits)
            self.session.say(None, until=PDB)
        answer = self.session.say(action["line"], until=PDB)
        return {"output": answer.text, "returncode": 0, "exception_info": ""}


class Debugger(Mini):
    """An agent with mini's environment and its own form of turns."""

    def form(self, scaffold):
        return PdbForm(scaffold)

    def attempt(self, task, model, sandbox, base, scaffold):
        return run_rollout(task, model, sandbox, base, scaffold, environment=Debugging)


class Canned(TextModel):
    """A model that repeats given turns, as calls or as fenced blocks."""

    def __init__(self, scaffold, turns):
        super().__init__(scaffold, "canned")
        self.turns = iter(turns)

    def query(self, messages, **_):
        turn = next(self.turns)
        if isinstance(turn, str):
            return self.reply(f"```bash\n{turn}\n```")
        called = {"name": turn[0], "arguments": json.dumps(turn[1])}
        return self.reply("", [{"id": f"call-{len(messages)}", "type": "function", "function": called}])


@pytest.fixture
def run(task, repos_dir, tmp_path, backend):
    def attempted(scaffold, turns):
        store = RepoStore(repos_dir, tmp_path / "store")
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        return attempt_task(task, lambda task: Canned(scaffold, turns), store, backend, scaffold, scratch)

    return attempted


def test_mini_through_the_seam(run):
    recipe = recipes.load(SCAFFOLD, DEMO)
    scaffold = loop_of(recipe)
    assert scaffold.plain() == recipe.plain()
    record = run(scaffold, ["sed -i 's/a - b/a + b/' calc/core.py", SUBMIT])
    assert record["outcome"] == "submitted" and "+    return a + b" in record["model_patch"]


def test_a_second_family_is_a_class_and_an_entry(run, monkeypatch):
    monkeypatch.setitem(AGENTS, "probing", "tests.contract.test_agents:Debugger")
    scaffold = loop_of(recipes.load(SCAFFOLD, DEMO)).model_copy(update={"agent": "probing", "step_limit": 9})
    with closing(Canned(scaffold, [])) as model:
        model.form = open_agent(scaffold.agent).form(scaffold)
        assert [tool["function"]["name"] for tool in model.offered["tools"]] == ["bash", "pdb"]
    record = run(
        scaffold,
        [
            ("bash", {"command": "echo 'from calc.core import add; print(add(2, 3))' > probe.py"}),
            ("pdb", {"line": "b calc/core.py:2"}),
            ("pdb", {"line": "c"}),
            ("pdb", {"line": "p a, b, a - b"}),
            ("bash", {"command": "rm probe.py; sed -i 's/a - b/a + b/' calc/core.py"}),
            ("bash", {"command": SUBMIT}),
        ],
    )
    seen = [message["content"] for message in record["messages"] if message["role"] == "tool"]
    assert "Breakpoint 1 at /testbed/calc/core.py:2" in seen[1]
    assert "-> return a - b" in seen[2] and "(2, 3, -1)\n(Pdb) " in seen[3]
    assert record["outcome"] == "submitted"
    assert record["model_patch"].count("diff --git") == 1 and "+    return a + b" in record["model_patch"]
