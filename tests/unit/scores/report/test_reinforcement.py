"""The page's section on reinforcement learning: curves with intervals, and one task early and late."""

from swelab.scores.report.reinforcement import section
from swelab.scores.report.rl_training import RlTraining

STEPS = [
    {"step": 0, "validation/tasks": 40, "validation/resolved": 20, "validation/resolve_rate": 0.5},
    {"step": 1, "rollouts": 64, "reward/mean": 0.4, "rate/resolved": 0.4, "end/submitted": 1.0},
    {
        "step": 2, "rollouts": 64, "reward/mean": 0.6, "rate/resolved": 0.6, "end/submitted": 0.9,
        "end/model_lost": 0.1, "validation/tasks": 40, "validation/resolved": 30,
        "validation/resolve_rate": 0.75,
    },
]  # fmt: skip


def attempt(step, name, resolved, said="<b>ls</b>"):
    status = "resolved" if resolved else "unresolved"
    told = [{"role": "system", "content": "the prompt"}, {"role": "assistant", "content": said}]
    return {"step": step, "instance_id": name, "status": status, "resolved": resolved, "messages": told}


def test_nothing_learned_is_no_section():
    assert section({}) == ""


def test_figures_are_said_and_drawn():
    page = section({"demo": RlTraining(STEPS)})
    assert "2 steps, 128 attempts" in page
    assert "20 of 40 solved at the start, 30 of 40 at the end" in page
    assert "of validation tasks, 95%: 0.5 to 0.75" in page and "of training tasks: 0.4 to 0.6" in page
    assert "Entropy" not in page, "what no step reported is not drawn"
    assert "The same task" not in page


def test_tasks_that_were_gained_come_first_and_text_is_escaped():
    rows = [attempt(0, "a", True), attempt(0, "b", False), attempt(9, "a", True), attempt(9, "b", True)]
    page = section({"demo": RlTraining(STEPS, rows)})
    assert page.index("<code>b</code>") < page.index("<code>a</code>")
    assert "&lt;b&gt;ls&lt;/b&gt;" in page and "<b>ls" not in page and "the prompt" not in page
    assert "At the start" in page and "After 9 steps" in page


def test_an_end_that_a_step_did_not_have_is_drawn_as_none():
    page = section({"demo": RlTraining(STEPS)})
    assert "How attempts ended" in page and ": 0 to 0.1" in page
