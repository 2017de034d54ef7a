"""slime's and Miles' hooks with a real server, real sandboxes and the demo's drill tasks."""

import asyncio
from argparse import Namespace

import pytest

from swelab import patience
from swelab.configs import recipes
from swelab.configs.kinds import REPO, SUBSET
from swelab.files.json_streams import write_list
from swelab.models.serving.server import serve
from swelab.models.token_turn import TokenTurn
from swelab.records import write_bytes
from swelab.rl.engines import slime
from swelab.tasks import drill
from swelab.tasks.exports import miles_row, slime_row
from tests.contract.test_served_tokens import scores
from tests.slime_sample import SlimeSample
from tests.toy_checkpoint import CONTEXT, SIZES, make_checkpoint

pytestmark = [pytest.mark.real, pytest.mark.full]
ASKED = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "max_new_tokens": 40, "stop": None}


@pytest.fixture(scope="module")
def place(tmp_path_factory, backend):
    """Drill tasks, and the environment variables that name them."""
    folder = tmp_path_factory.mktemp("slime")
    write_bytes(folder / "repos/drill.tar", drill.build_repo(recipes.load_named(REPO, "drill")))
    subset = recipes.load_named(SUBSET, "drill-train").model_copy(update={"limit": 2})
    tars = {"drill": folder / "repos/drill.tar"}
    rows, _ = drill.make_tasks(subset, tars, backend, folder / "making.jsonl", 2)
    write_list(folder / "tasks.json", rows)
    make_checkpoint(folder / "toy")
    with pytest.MonkeyPatch.context() as patch:
        told = {"TASKS": "tasks.json", "REPOS": "repos", "WORK": "work"}
        for name, path in told.items():
            patch.setenv(f"SWELAB_{name}", str(folder / path))
        patch.setenv("SWELAB_SCAFFOLD", "configs/scaffolds/demo.yaml")
        yield folder, list(slime.workplace().tasks.values())


@pytest.fixture(scope="module")
def args(place):
    """slime's arguments: a router, a checkpoint, the length of a conversation."""
    folder, _ = place
    with serve(folder / "toy", name="toy", log=folder / "server.log", **SIZES) as endpoint:
        host, port = endpoint.url.removeprefix("http://").removesuffix("/v1").split(":")
        yield Namespace(
            sglang_router_ip=host, sglang_router_port=int(port), sglang_api_key=endpoint.api_key,
            hf_checkpoint=str(folder / "toy"), rollout_max_context_len=CONTEXT, reward_key="score",
        )  # fmt: skip


def row_of(form, task):
    return slime_row(task, "drill") if form == "slime" else miles_row(task, "drill", "train")


@pytest.mark.parametrize("form", ["slime", "miles"])
def test_a_group_is_rolled_out_and_graded(place, args, form):
    folder, (task, *_) = place
    row = row_of(form, task)
    group = [SlimeSample(0, index, row.get("text", ""), metadata=row["metadata"]) for index in range(4)]

    async def all_of_them():
        return await asyncio.gather(*(slime.generate(args, each, dict(ASKED)) for each in group))

    made = asyncio.run(all_of_them())
    assert slime.whole_group(args, made)
    flat = [each for entry in made for each in (entry if isinstance(entry, list) else [entry])]
    for sample in flat:
        assert sample.status in (SlimeSample.Status.COMPLETED, SlimeSample.Status.TRUNCATED)
        assert sample.reward == {"score": 0.0, "acc": 0.0}, "random weights mend nothing"
        assert len(sample.loss_mask) == len(sample.rollout_log_probs) == sample.response_length
        assert sum(sample.loss_mask) > 0 and len(sample.tokens) <= CONTEXT
        assert sample.metadata["swelab"]["status"] != "infra_error"
    turn = Namespace(
        prompt=flat[0].tokens[: -flat[0].response_length], sampled=flat[0].tokens[-flat[0].response_length :]
    )
    known = [at for at, trained in enumerate(flat[0].loss_mask) if trained]
    theirs = scores(folder / "toy", turn, 1.0)[known].tolist()
    assert theirs == pytest.approx([flat[0].rollout_log_probs[at] for at in known], abs=1e-3)


class Repairs:
    """A policy that knows the repair."""

    def __init__(self, template, task):
        undo = f"patch -p1 -R <<'END'\n{task.patch}END"
        self.template, self.commands = template, [undo, "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"]

    def generate(self, prompt, sampling):
        ids = [*self.template.ids(f"```bash\n{self.commands.pop(0)}\n```"), self.template.turn_end_id]
        return TokenTurn(prompt, ids, [-0.5] * len(ids), "stop", ((0, "3"),))


@pytest.mark.parametrize("reward_key", [None, "score"])
def test_a_repair_is_rewarded(place, args, monkeypatch, reward_key):
    folder, (task, *_) = place
    template = slime.template_of(str(folder / "toy"))
    monkeypatch.setattr(slime, "ServedTokens", lambda endpoint: Repairs(template, task))
    told = Namespace(**{**vars(args), "reward_key": reward_key, "rollout_max_context_len": None})
    sample = SlimeSample(0, 0, metadata={"instance_id": task.instance_id})
    assert asyncio.run(slime.generate(told, sample, dict(ASKED))) is sample
    assert sample.reward == ({"score": 1.0, "acc": 1.0} if reward_key else 1.0), sample.metadata
    assert sample.status is SlimeSample.Status.COMPLETED and sample.weight_versions == ["3"]


def test_a_server_that_is_gone_loses_the_rollout_and_says_nothing_of_the_policy(place, args, monkeypatch):
    monkeypatch.setattr(patience, "sleep", lambda seconds: None)
    gone = Namespace(**{**vars(args), "sglang_router_port": 9})
    _, (task, *_) = place
    sample = SlimeSample(0, 0, metadata=slime_row(task, "drill")["metadata"])
    made = asyncio.run(slime.generate(gone, sample, dict(ASKED)))
    assert made is sample and sample.status is SlimeSample.Status.ABORTED and sample.remove_sample
    assert not slime.whole_group(args, [sample]) and sum(sample.loss_mask) == 0
