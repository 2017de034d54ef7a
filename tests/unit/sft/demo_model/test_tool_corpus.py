"""The text of the base model that will use the debugger's tools, and its chat template."""

import json
import re

import pytest
from jinja2 import Environment

from swelab.agents.debugger.definitions import definitions
from swelab.configs import recipes
from swelab.configs.kinds import MODEL, REPO, SCAFFOLD, SUBSET
from swelab.sft.demo_model.base_corpus import functions_in
from swelab.sft.demo_model.base_tokenizer import TOOL_TEMPLATE
from swelab.sft.demo_model.tool_corpus import ToolWorld
from swelab.tasks import drill
from swelab.tasks.split import side_of

RECIPE = recipes.load_named(MODEL, "tiny-tools")


@pytest.fixture(scope="module")
def archive():
    return drill.build_repo(recipes.load_named(REPO, "drill-files"))


@pytest.fixture(scope="module")
def documents(archive):
    return list(ToolWorld(archive, "drill-files", RECIPE.heldout_share).documents(3, 2000))


def test_the_split_of_the_text_is_the_split_of_the_tasks():
    names = ("heldout", "hinted", "practice", "shown")
    shares = {recipes.load_named(SUBSET, f"debug-{name}").heldout_share for name in names}
    assert shares == {RECIPE.heldout_share}


def test_no_heldout_function_and_no_second_step_in_the_text(archive, documents):
    share = RECIPE.heldout_share
    functions = functions_in(archive, "drill-files")
    assert len(functions) == 768 and all("/" not in path for path, _ in functions)
    heldout = {
        name for path, name in functions if side_of("drill-files", f"{path}::{name}", share) == "heldout"
    }
    assert len(heldout) > 100
    for document in documents:
        assert not {*re.findall(r"(?:test_)?([a-z]+_[a-z]+)", document.text)} & heldout
        assert document.text.count('{"name"') <= 1
        assert not any(word in document.text for word in ("tool_call", "<|im"))


def test_copies_come_first_then_an_index_of_one_form_then_of_all(documents):
    first, after = documents[:200], documents[200:]
    assert all(sorted(each.line.split("\n")) == sorted(each.note.split("\n")) for each in first)
    assert sum(each.line == each.note for each in first) in range(80, 170)
    index = [(at, each.line) for at, each in enumerate(after, 200) if each.line.count("\n") == 1]
    assert all("::" in line and " " in line for at, line in index if at < 600)
    assert {line.count("::") for at, line in index if at >= 600} == {0, 1, 2}


def test_a_call_is_one_that_the_scaffold_offers_and_the_last_listing_is_what_it_repairs(documents):
    from swelab.agents.agent import loop_of, open_agent

    loop = loop_of(recipes.load_named(SCAFFOLD, "demo-debugger"))
    form = open_agent("debugger").form(loop)
    seen = set()
    for document in documents[200:]:
        said, _, call = document.line.strip().partition("\n")
        if not call:
            continue
        assert said.partition(" It is ")[0] in document.note.splitlines()
        asked = json.loads(call)
        seen.add(asked["name"])
        call = {"id": "1", "function": {"name": asked["name"], "arguments": json.dumps(asked["arguments"])}}
        assert form.parse("", [call], "stop")[0]["tool"] == asked["name"]
        if asked["name"] == "rewrite":
            listed = dict(re.findall(r"^ +(\d+) (.*)$", document.listing, re.MULTILINE))
            assert listed[str(asked["arguments"]["start"])] != asked["arguments"]["new_code"]
            if "the right number" in said:
                number = asked["arguments"]["new_code"].rpartition(" ")[2]
                assert said.endswith(f" It is {number}.") and number in document.note.splitlines()
    assert seen == {"grep", "view", "pdb", "rewrite"}


def test_the_template_offers_tools_and_writes_calls_as_they_are_parsed():
    loop_settings = recipes.load_named(SCAFFOLD, "demo-debugger")
    from swelab.agents.agent import loop_of

    tools = definitions(loop_of(loop_settings).debugger)
    arguments = {"path": "a.py", "start": 2, "new_code": '    return "é"\n'}
    messages = [
        {"role": "system", "content": "Fix the bug."},
        {"role": "user", "content": "a fails."},
        {
            "role": "assistant",
            "content": "a should pass.",
            "tool_calls": [{"function": {"name": "eval", "arguments": {}}}],
        },
        {"role": "tool", "content": "1 failed"},
    ]
    made = Environment()
    made.policies["json.dumps_kwargs"] = {"ensure_ascii": False}
    made.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    template = made.from_string(TOOL_TEMPLATE)
    shown = template.render(messages=messages, tools=tools, add_generation_prompt=True)
    assert shown.startswith("<|im_start|>system\nFix the bug.\npdb(command, runner, file)\nview(path, start")
    call = '<tool_call>\n{"name": "eval", "arguments": {}}\n</tool_call>'
    assert f"<|im_start|>assistant\na should pass.\n{call}<|im_end|>" in shown
    assert shown.endswith("<|im_start|>user\n1 failed<|im_end|>\n<|im_start|>assistant\n")
    for given in (arguments, json.dumps(arguments, ensure_ascii=False)):
        call = {"function": {"name": "rewrite", "arguments": given}}
        turn = template.render(messages=[{"role": "assistant", "content": "", "tool_calls": [call]}])
        inside = turn.partition("<tool_call>\n")[2].partition("\n</tool_call>")[0]
        assert json.loads(inside) == {"name": "rewrite", "arguments": arguments}


def test_what_is_copied_weighs_most_in_a_call(documents):
    from swelab.sft.demo_model.base_model import encode
    from swelab.sft.demo_model.base_tokenizer import train_tokenizer

    tokenizer = train_tokenizer([document.text for document in documents[:50]], 320)
    document = next(each for each in documents if '{"name": "view"' in each.line)
    said, call, _ = document.line.split("\n")
    asked = json.loads(call)["arguments"]
    ids, weights = encode(tokenizer, document, RECIPE.train)
    heavy = tokenizer.decode([number for number, weight in zip(ids, weights) if weight == 1])
    assert heavy == f'{said}\n"view""{asked["path"]}"{asked["start"]}{asked["end"]}'
    size = len(tokenizer.encode(document.line).ids)
    assert {*weights[-1 - size : -1]} == {1.0, RECIPE.train.frame_weight}
    plain = next(each for each in documents if "{" not in each.line)
    size = len(tokenizer.encode(plain.line).ids)
    assert {*encode(tokenizer, plain, RECIPE.train)[1][-1 - size : -1]} == {1.0}
