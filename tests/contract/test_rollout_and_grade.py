"""One task through the real agent loop, the real sandbox, real git and real tests."""

import json
import tarfile
from types import SimpleNamespace

import pytest

from swelab.agents.agent import loop_of
from swelab.configs import recipes
from swelab.configs.kinds import SCAFFOLD as SCAFFOLD_KIND
from swelab.configs.kinds import scaffold
from swelab.configs.kinds.policy import ScriptedPolicy
from swelab.configs.kinds.scaffold import MiniLoop
from swelab.grading.harness.grade import grade
from swelab.grading.swebench_report import build_report
from swelab.models import ModelLost
from swelab.models.chat.scripted import ScriptedModel, failing_test_command, gold_edit
from swelab.models.chat.scripted_functions import FunctionScript
from swelab.records import InputError, check, read_json, read_jsonl, write_json
from swelab.records.attempt_records import Grade, Message, Trajectory
from swelab.records.report_records import Report
from swelab.rollouts.rollout_stage import attempt_task, roll_out
from swelab.rollouts.token_usage import usage_of
from swelab.sandbox import Limits, SandboxLost
from swelab.sft.rows.styles import failed_turns
from swelab.tasks.checkout import RepoStore, gold_patch
from swelab.tasks.patch_application import git

pytestmark = pytest.mark.real

SCAFFOLD = MiniLoop(
    agent="mini",
    system_template="Fix the bug.",
    instance_template="{{task}}",
    observation_template="exit {{output.returncode}}\n{{output.output}}",
    format_error_template="One block, please.",
    action_regex="```bash\\n(.*?)\\n```",
    submit_marker="COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
    max_observation_chars=2000,
    step_limit=8,
    max_format_errors=3,
    wall_seconds=3600,
    cost_limit=0,
    limits=scaffold.Limits(wall_seconds=120),
)
POLICY = ScriptedPolicy(kind="scripted", scaffold="x")


def attempt_with(task, store, backend, tmp_path, model_for, **scaffold):
    return attempt_task(task, model_for, store, backend, SCAFFOLD.model_copy(update=scaffold), tmp_path)


class Speaker(ScriptedModel):
    """The scripted model with other turns."""

    def __init__(self, task, turns):
        super().__init__(task, POLICY, SCAFFOLD)
        self.turns = list(turns)

    def query(self, messages, **_):
        turn = self.turns.pop(0)
        if isinstance(turn, Exception):
            raise turn
        return self.reply(turn)


def block(command):
    return f"```bash\n{command}\n```"


def test_checkout_is_one_commit_without_the_clean_code(task, store, tmp_path):
    store.checkout(task, tmp_path / "a")
    store.checkout(task, tmp_path / "b")
    heads = [git(tmp_path / name, "rev-parse", "HEAD").stdout for name in "ab"]
    assert heads[0] == heads[1]
    assert git(tmp_path / "a", "rev-list", "--all", "--count").stdout.strip() == b"1"
    assert b"a - b" in (tmp_path / "a" / "calc" / "core.py").read_bytes()
    everything = git(tmp_path / "a", "log", "-p", "--all").stdout
    assert b"a + b" not in everything
    with pytest.raises(InputError, match="does not apply"):
        store.checkout(task | {"patch": task["patch"].replace("a + b", "nothing")}, tmp_path / "c")


def test_scripted_policy_solves_and_the_grade_says_so(task, store, backend, tmp_path):
    row = attempt_with(task, store, backend, tmp_path, lambda t: ScriptedModel(t, POLICY, SCAFFOLD))
    check(row | {"policy": "p", "subset": "s"}, Trajectory, "test")
    assert row["outcome"] == "submitted"
    commands = [m["extra"]["actions"][0]["command"] for m in row["messages"] if m["role"] == "assistant"]
    assert commands[1] == "sed -i '2s/-/+/' calc/core.py"
    assert [m["role"] for m in row["messages"]] == ["system", "user"] + ["assistant", "user"] * 3 + [
        "assistant",
        "exit",
    ]
    again = attempt_with(task, store, backend, tmp_path, lambda t: ScriptedModel(t, POLICY, SCAFFOLD))
    assert json.dumps(row) == json.dumps(again)
    verdict = grade(task, row["model_patch"], store, backend, Limits())
    assert verdict["status"] == "resolved"
    assert verdict["tests_status"]["FAIL_TO_PASS"]["success"] == task["FAIL_TO_PASS"]


@pytest.mark.parametrize(
    "shares, status", [({"wrong_edit": 1.0}, "unresolved"), ({"give_up": 1.0}, "empty_patch")]
)
def test_scripted_policy_fails_honestly(task, store, backend, tmp_path, shares, status):
    policy = POLICY.model_copy(update=shares)
    row = attempt_with(task, store, backend, tmp_path, lambda t: ScriptedModel(t, policy, SCAFFOLD))
    assert row["outcome"] == "submitted"
    assert grade(task, row["model_patch"], store, backend, Limits())["status"] == status


WRITER = recipes.load_named(SCAFFOLD_KIND, "functions")


FIX = "fix <<'END'\n{}\nEND"


@pytest.mark.parametrize("errs, tries", [(0.0, 1), (1.0, 2)])
def test_function_script_replaces_lines_until_the_tests_pass(task, store, backend, tmp_path, errs, tries):
    policy = POLICY.model_copy(update={"edits": "function", "wrong_edit": errs})
    task |= {"hint": {"line": 1}}
    loop = loop_of(WRITER)
    row = attempt_task(task, lambda t: FunctionScript(t, policy, loop), store, backend, loop, tmp_path)
    said = [m["extra"]["actions"][0]["command"] for m in row["messages"] if m["role"] == "assistant"]
    assert said[0] == (
        "show calc/core.py add 'python -m pytest -qq --tb=no -p no:cacheprovider tests/test_core.py'"
    )
    assert len(said) == 1 + tries
    assert said[-1] == FIX.format("-    return a - b\n+    return a + b")
    seen = [m["content"] for m in row["messages"] if m["role"] == "user"]
    assert seen[1] == "exit 0\ndef add(a, b):\n    return a - b\n"
    assert all(text.startswith("exit 1\nNo replacement was performed") for text in seen[2:])
    assert len(failed_turns([Message.of(each) for each in row["messages"]])) == len(seen[2:]) == tries - 1
    assert grade(task, row["model_patch"], store, backend, Limits())["status"] == "resolved"


def test_scaffold_of_functions_takes_back_what_does_not_help(task, store, backend, tmp_path):
    turns = [
        (FIX.format("-a\n+b"), "show a function first"),
        ("show calc/core.py none true", None),
        ("show calc/core.py add 'echo one; echo two; false'", None),
        (FIX.format("    return 1"), "a line begins neither with - nor with +"),
        (FIX.format("+    return 1"), "no line to replace"),
        (FIX.format("-    return a * b\n+    return 1"), "no such line in the function: return a * b"),
        (FIX.format("-    return a - b\n+    return a - b"), "nothing changed"),
        (FIX.format("-    return a - b\n+    return a -"), "invalid syntax"),
        (FIX.format("-    return a - b\n+    return a + b"), "two"),
        ("cat calc/core.py", None),
        ("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", None),
    ]
    loop = loop_of(WRITER).model_copy(update={"step_limit": len(turns)})
    speaker = Speaker(task, [block(command) for command, _ in turns])
    row = attempt_task(task, lambda t: speaker, store, backend, loop, tmp_path)
    seen = [m["content"] for m in row["messages"] if m["role"] == "user"][1:]
    for text, (_, why) in zip(seen, turns):
        assert not why or text == f"exit 1\nNo replacement was performed: {why}\n"
    assert seen[1] == "exit 1\nno function none in calc/core.py\n"
    assert "return a - b" in seen[-1]
    assert row["model_patch"] == ""


def test_gold_edit_and_gold_patch(task, store, backend):
    edit = gold_edit(task)
    assert (edit.path, edit.number, edit.before, edit.after) == (
        "calc/core.py",
        2,
        ["    return a - b"],
        ["    return a + b"],
    )
    assert grade(task, gold_patch(store, task), store, backend, Limits())["status"] == "resolved"


def test_outcomes(task, store, backend, tmp_path):
    def outcome(*turns, **scaffold):
        return attempt_with(task, store, backend, tmp_path, lambda t: Speaker(t, turns), **scaffold)

    assert outcome(*["hello"] * 3)["outcome"] == "malformed"
    assert outcome(*[block("true")] * 3, step_limit=2)["outcome"] == "step_limit"
    assert outcome(ModelLost("gone"))["outcome"] == "model_lost"
    assert outcome(SandboxLost("gone"))["outcome"] == "sandbox_lost"
    row = outcome(
        "hello",
        block("while :; do :; done"),
        block("echo x > new.txt"),
        block("echo " + SCAFFOLD.submit_marker),
        limits=scaffold.Limits(wall_seconds=600, cpu_seconds=1),
    )
    assert row["outcome"] == "submitted" and "new.txt" in row["model_patch"]
    assert row["messages"][3]["content"] == "One block, please."
    assert row["messages"][5]["extra"]["exception_info"] == "the command was stopped at its cpu limit"


@pytest.mark.parametrize("told, outcome", [(0, "time_limit"), (1.2, "submitted")])
def test_waiting_for_a_service_is_not_the_policys_time(
    task, store, backend, tmp_path, monkeypatch, told, outcome
):
    passed = []
    monkeypatch.setattr("minisweagent.agents.default.time", SimpleNamespace(time=lambda: sum(passed)))

    class Slow(Speaker):
        def query(self, messages, **_):
            passed.append(0.7)
            self.on_wait(told / 2)
            return super().query(messages)

    turns = [block("true"), block("true"), block("echo " + SCAFFOLD.submit_marker)]
    row = attempt_with(task, store, backend, tmp_path, lambda t: Slow(t, turns), wall_seconds=1)
    assert row["outcome"] == outcome


def test_seconds_of_an_attempt(task, store, backend, tmp_path):
    class Timed(Speaker):
        timed = True

    turns = [block("echo " + SCAFFOLD.submit_marker)]
    row = attempt_with(task, store, backend, tmp_path, lambda t: Timed(t, turns))
    assert row["seconds"] > 0 and usage_of(row).seconds == row["seconds"]
    scripted = attempt_with(task, store, backend, tmp_path, lambda t: Speaker(t, turns))
    assert "seconds" not in scripted and "seconds" not in usage_of(scripted)


def test_a_patch_with_odd_bytes_survives(task, store, backend, tmp_path):
    turns = [
        block(
            "printf 'caf\\351\\n' > latin.txt; printf '\\000\\001' > blob.bin; "
            "sed -i 's/a - b/a + b/' calc/core.py"
        ),
        block("echo " + SCAFFOLD.submit_marker),
    ]
    row = attempt_with(task, store, backend, tmp_path, lambda t: Speaker(t, turns))
    write_json(tmp_path / "p.json", row)
    patch = read_json(tmp_path / "p.json")["model_patch"]
    assert grade(task, patch, store, backend, Limits())["status"] == "resolved"


def test_grades(task, store, backend):
    def status(patch, **changes):
        return grade(task | changes, patch, store, backend, Limits())["status"]

    gold = gold_patch(store, task)
    assert status(None) == status("  \n") == "empty_patch"
    assert status("not a patch") == "apply_failed"
    assert status(gold, test_cmd="sleep 600", test_timeout=1) == "timeout"
    forged = "--- a/tests/test_core.py\n+++ b/tests/test_core.py\n@@ -5,3 +5,3 @@\n def test_add():\n"
    forged += "-    assert add(2, 3) == 5\n+    assert True\n \n"
    assert status(forged) == "unresolved"
    link = "diff --git a/tests/test_core.py b/tests/test_core.py\ndeleted file mode 100644\n"
    assert status(link + "--- a/tests/test_core.py\n+++ /dev/null\n" + "@@ -1,9 +0,0 @@\n") in (
        "apply_failed",
        "unresolved",
    )
    with pytest.raises(InputError, match="parser"):
        status(gold, log_parser="parse_log_nothing")


def test_lost_sandbox_is_never_an_unsolved_task(task, store, backend, monkeypatch):
    class Dying:
        def start(self, tree, **options):
            raise SandboxLost("killed")

    verdict = grade(task, gold_patch(store, task), store, Dying(), Limits())
    assert verdict["status"] == "infra_error" and not verdict["resolved"]


def test_shard_resumes_and_reports(task, repos_dir, tmp_path):
    tasks = [task | {"instance_id": f"o__r.00000000.func_pm_x__{n:08d}"} for n in range(4)]
    arguments = {
        "policy_name": "scripted",
        "policy": POLICY,
        "scaffold": SCAFFOLD,
        "subset": "s",
        "shard": "000of001",
        "repos_dir": repos_dir,
        "progress": tmp_path / "j.jsonl",
        "workers": 2,
    }
    rows = list(roll_out(tasks[:3], **arguments))
    more = list(roll_out(tasks, **arguments))
    assert more[:3] == rows and len(list(read_jsonl(tmp_path / "j.jsonl"))) == 4
    grades = [
        Grade.of({"instance_id": row["instance_id"], "status": "resolved", "resolved": True})
        for row in more[:3]
    ]
    report = build_report(tasks, grades, "scripted", "s")
    check(report, Report, "test")
    assert report["resolved_instances"] == 3 and report["incomplete_ids"] == [tasks[3]["instance_id"]]
    with pytest.raises(InputError, match="twice"):
        build_report(tasks, [*grades, grades[0]], "scripted", "s")


@pytest.mark.parametrize("name, entry_type", [("../out", b"0"), ("/out", b"0"), ("link", b"2")])
def test_an_unsafe_repository_archive_is_refused(task, tmp_path, name, entry_type):
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = entry_type, "/etc/passwd"
    with tarfile.open(tmp_path / "calc.tar", "w") as tar:
        tar.addfile(entry)
    with pytest.raises(InputError, match="unsafe entry"):
        RepoStore(tmp_path, tmp_path / "cache").clean_tree(task)
    assert not (tmp_path / "out").exists() and not list((tmp_path / "cache").iterdir())


def test_the_script_s_test_run_has_the_settings_of_the_task_s_own_command(task):
    task |= {"test_cmd": "LANG=C python -m pytest -o pythonpath=src -rA --tb=no tests"}
    expected = "LANG=C python -m pytest -qq -o pythonpath=src --tb=no -p no:cacheprovider tests/test_core.py"
    assert failing_test_command(task) == expected
