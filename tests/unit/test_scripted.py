"""The script on rows that are not ours: published sets name neither function nor test command."""

from swelab import recipes
from swelab.models.scripted import ScriptedModel


def test_a_published_row_is_played(task):
    row = {name: task[name] for name in task if name not in ("function", "test_cmd", "source")}
    scaffold = recipes.named("scaffold", "demo")
    model = ScriptedModel(row, recipes.named("policy", "scripted"), scaffold)
    model.gives_up = model.errs = False
    messages = [{"role": "user", "content": "    return a - b"}]
    commands = []
    for _ in range(4):
        turn = model.query(messages)
        commands.append(turn["extra"]["actions"][0]["command"])
        messages += [turn, messages[0]]
    assert commands == [
        "sed -n '1,8p' calc/core.py",
        "sed -i '2s/-/+/' calc/core.py",
        "python -m pytest -qq --tb=no -p no:cacheprovider tests/test_core.py",
        f"echo {scaffold['submit_marker']}",
    ]
