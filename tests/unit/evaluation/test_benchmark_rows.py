"""Rows of an evaluation: which are chosen, which are refused, and why."""

import json

import pytest

from swelab.evaluation.benchmark_rows import Source, read_benchmark, select_tasks, slice_of
from swelab.evaluation.evaluation_plan import policy_of, without_secret
from swelab.records import InputError
from tests.conftest import make_task
from tests.json_service import json_service


def lines(path, *rows):
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    return Source(str(path))


def test_a_bad_row_is_refused_with_its_reason_and_the_others_go_on(tmp_path):
    good, other = make_task() | {"instance_id": "a"}, make_task() | {"instance_id": "b"}
    odd = good | {"problem_statement": "Another issue."}
    rows = [good, '{"cut\n', {"instance_id": "c"}, good, other, odd, good | {"instance_id": "../x"}]
    found = read_benchmark(lines(tmp_path / "rows.jsonl", *rows, good | {"instance_id": "e", "patch": ""}))
    assert [task.instance_id for task in found.tasks] == ["a", "b"]
    reasons = [reason for _, reason in sorted(found.refused.items())]
    assert found.rows == 8 and len(reasons) == 6
    told = (
        *("not JSON", "field repo is missing", "the same row stands before it"),
        *("earlier, different row", "../x", "field patch is empty"),
    )
    assert all(word in reason for word, reason in zip(told, reasons, strict=True))
    assert len(found.reasons()) == 6 and found.reasons()[0].startswith("1 refused, such as ")


def test_tasks_are_chosen_by_pattern_then_slice_then_count():
    tasks = [make_task() | {"instance_id": name} for name in ("a1", "b1", "a2", "a3", "a4")]
    names = lambda **given: [task.instance_id for task in select_tasks(tasks, **given)]  # noqa: E731
    assert names(pattern="a", part="1:", most=2) == ["a2", "a3"]
    assert names(ids=["a4", "b1"]) == ["b1", "a4"]
    assert names(part="-2:") == ["a3", "a4"]
    for wrong in ({"ids": ["zz"]}, {"pattern": "("}, {"part": "3"}, {"part": "0:5:0"}, {"pattern": "nobody"}):
        with pytest.raises(InputError):
            names(**wrong)
    assert slice_of("") == slice(None) and slice_of("0:5") == slice(0, 5)


def test_a_set_on_the_hub_is_taken_at_its_newest_commit(tmp_path, monkeypatch):
    asked = []

    def hub(path, headers, body):
        asked.append(path)
        return 404, {}

    with json_service(hub) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        with pytest.raises(InputError, match=r"dataset owner/set: the hub refuses it \(404\)"):
            read_benchmark(Source("owner/set"))
    assert asked == ["/api/datasets/owner/set"]


def test_no_address_tells_a_password():
    assert without_secret("http://me:secret@host:8000/v1?key=secret") == "http://host:8000/v1"
    assert without_secret("http://[::1]:8000/v1") == "http://[::1]:8000/v1"
    assert without_secret("http://me:se@cret@[::1/v1") == "http://[::1/v1"
    assert without_secret("configs/policies/x.yaml") == "configs/policies/x.yaml"


@pytest.mark.parametrize("address", ["http://host:99999/v1", "http://host:abc/v1", "http://[::1/v1", "host"])
def test_a_malformed_address_is_one_line_without_its_password(address, tmp_path):
    (tmp_path / "toy.yaml").write_text("{kind: hosted, scaffold: demo, model: openai/toy}")
    address = address.replace("//", "//me:secret@")
    for model in ("openai/toy", str(tmp_path / "toy.yaml")):
        with pytest.raises(InputError, match="--api-base .* expected an address such as") as fault:
            policy_of(model, api_base=address, sampling={})
        assert "secret" not in str(fault.value)


def test_the_key_of_the_command_line_goes_to_its_address(tmp_path):
    (tmp_path / "toy.yaml").write_text("{kind: hosted, scaffold: demo, model: openai/toy, api_key_env: MINE}")
    where = {"api_base": "https://other/v1", "sampling": {}}
    _, policy = policy_of(str(tmp_path / "toy.yaml"), api_key_env="OTHER", **where)
    assert (policy.api_base, policy.api_key_env) == ("https://other/v1", "OTHER")
    _, policy = policy_of(str(tmp_path / "toy.yaml"), **where)
    assert (policy.api_base, policy.api_key_env) == ("https://other/v1", "MINE")
    with pytest.raises(InputError, match="do not apply to a folder of weights"):
        policy_of(str(tmp_path), **where)
