"""Two real servers behind their gate: killed, frozen, without the gate, and drained at the end."""

import contextlib
import json
import os
import signal
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from swelab.agents.agent import loop_of
from swelab.configs import kinds, recipes
from swelab.configs.kinds import POLICY
from swelab.configs.kinds.policy import Job
from swelab.models.chat.served_models import ChatModel
from swelab.models.serving import fleet as fleets
from swelab.models.serving import server_watchdog
from swelab.models.serving.fleet import serve_fleet
from swelab.rollouts import rollout_stage
from tests.contract.attacks import until, writers
from tests.toy_checkpoint import SCAFFOLD, SIZES, make_checkpoint

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.alone]
JOB = Job(servers=2)


class Served:
    """A running fleet and its processes."""

    def __init__(self, folder, stack):
        self.folder, self.stack = folder, stack
        self.seen = []
        fleet = fleets.Fleet

        def noted(*arguments):
            self.seen.append(fleet(*arguments))
            return self.seen[-1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fleets, "Fleet", noted)
            log = folder / "server.log"
            self.endpoint = stack.enter_context(
                serve_fleet(folder / "toy", name="toy", job=JOB, log=log, **SIZES)
            )

    @property
    def fleet(self):
        return self.seen[0]

    def processes(self, log):
        """Maps pids to command lines, for the processes that write to a log."""
        return writers(self.folder / log)

    def scheduler(self, log):
        return next(pid for pid, text in self.processes(log).items() if "scheduler" in text)

    def starts(self):
        return [server.starts for server in self.fleet.servers]

    def whole(self):
        """Returns whether both servers are up and known to the gate."""
        return all(server.endpoint for server in self.fleet.servers) and self.fleet.gate.generating() == 2


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fleet")
    make_checkpoint(folder / "toy")
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.setattr(server_watchdog, "CHECK_SECONDS", 1.0)
        patch.setattr(server_watchdog, "ANSWER_SECONDS", 8.0)
        patch.setattr(server_watchdog, "MUTE_CHECKS", 2)
        yield Served(folder, stack)


def ask(served, number, tokens=48):
    history = [{"role": "user", "content": f"f{number} must return {number}."}]
    sampling = {"temperature": 0, "top_p": 1, "max_tokens": tokens, "seed": 0}
    return ChatModel(served.endpoint, SCAFFOLD, sampling).query(history)["content"]


@pytest.fixture(scope="module")
def answers(served):
    """The responses without any fault."""
    return [ask(served, number) for number in range(40)]


def test_both_serve_behind_one_token_that_nobody_sees(served, answers):
    assert len(set(answers)) > 1 and served.whole()
    logs = ("server.log", "server1.log", "server.gate.log")
    running = {log: served.processes(log) for log in logs}
    assert all(running.values())
    shown = [text for found in running.values() for text in found.values()]
    assert not any(served.endpoint.api_key in text for text in shown)
    urls = [served.endpoint.url, *(server.endpoint.url for server in served.fleet.servers)]
    assert len(set(urls)) == 3 and all(url.startswith("http://127.0.0.1:") for url in urls)
    body = json.dumps({"model": "toy", "prompt": "a", "max_tokens": 1}).encode()
    for url in urls:
        request = urllib.request.Request(f"{url}/completions", body, {"Content-Type": "application/json"})
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(request)
    for log in logs:
        text = (served.folder / log).read_text()
        assert served.endpoint.api_key not in text and (served.folder / log).stat().st_mode & 0o077 == 0


def test_a_killed_server_comes_back_and_no_request_is_lost(served, answers):
    before = served.starts()
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, served, number) for number in range(40)]
        until(lambda: sum(each.done() for each in asked) > 4, 60)
        os.kill(served.scheduler("server.log"), signal.SIGKILL)
        assert not all(each.done() for each in asked)
        assert [each.result() for each in asked] == answers
    assert until(lambda: served.starts()[0] > before[0] and served.whole(), 120)
    assert served.starts() == [before[0] + 1, before[1]]


def untimed(value):
    """Returns a record without its durations."""
    if isinstance(value, dict):
        return {name: untimed(item) for name, item in value.items() if name != "seconds"}
    return [untimed(item) for item in value] if isinstance(value, list) else value


def test_rollouts_over_killed_servers_are_those_over_sound_ones(
    served, task, repos_dir, tmp_path, monkeypatch
):
    @contextlib.contextmanager
    def over_the_fleet(policy, name, scaffold, log, paid):
        yield lambda task: ChatModel(served.endpoint, scaffold, policy.sampling.plain())

    monkeypatch.setattr(rollout_stage, "open_policy", over_the_fleet)
    weights = str(served.folder / "toy")
    policy = {"kind": "checkpoint", "scaffold": "demo", "weights": weights, "sampling": {"max_tokens": 24}}
    policy = recipes.complete(POLICY, policy, "policy")
    scaffold = loop_of(recipes.load_named(kinds.SCAFFOLD, "demo"))
    scaffold = scaffold.model_copy(update={"step_limit": 3, "max_format_errors": 9})
    tasks = [task | {"instance_id": f"task-{n}", "problem_statement": f"Mend f{n}."} for n in range(12)]

    def run(name):
        shard = {"subset": "s", "shard": "000of001", "workers": 4}
        places = {"repos_dir": repos_dir, "progress": tmp_path / f"{name}.jsonl"}
        return list(
            rollout_stage.roll_out(
                tasks, policy_name="p", policy=policy, scaffold=scaffold, **shard, **places
            )
        )

    sound = run("sound")

    done = lambda: len((tmp_path / "killed.jsonl").read_bytes().splitlines())  # noqa: E731
    at_the_murder = []

    def murder():
        until(lambda: (tmp_path / "killed.jsonl").exists() and done(), 60)
        os.kill(served.scheduler("server1.log"), signal.SIGKILL)
        at_the_murder.append(done())

    killer = threading.Thread(target=murder)
    killer.start()
    killed = run("killed")
    killer.join()
    assert 0 < at_the_murder[0] < len(tasks)
    lasting = lambda rows: [(r["instance_id"], r["outcome"], untimed(r["messages"])) for r in rows]  # noqa: E731
    assert len(sound) == 12 and not {"model_lost", "sandbox_lost"} & {row["outcome"] for row in sound}
    assert lasting(killed) == lasting(sound)


def test_the_end_cuts_no_request(served):
    with ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(ask, served, number, tokens=350) for number in range(6)]
        time.sleep(0.5)
        assert not all(each.done() for each in asked)
        served.stack.close()
        assert all(len(each.result()) > 300 for each in asked)
    assert not served.endpoint.alive()
    for log in ("server.log", "server1.log", "server.gate.log"):
        assert not served.processes(log)
