"""A chat service with a fixed plan: each response depends only on the number of turns in the conversation."""

import json
from contextlib import contextmanager

from tests.json_service import json_service

KEY = "planned-key-8d1f"
EDIT = {
    "command": "str_replace",
    "path": "/testbed/calc/core.py",
    "old_str": "return a - b",
    "new_str": "return a + b",
}
PLAN = [
    ("I look.", "bash", {"command": "git log --all --oneline | wc -l; history | wc -l; cat calc/core.py"}),
    ("I view.", "str_replace_editor", {"command": "view", "path": "/testbed/calc/core.py"}),
    ("I repair it.", "str_replace_editor", EDIT),
    ("I submit.", "submit", {}),
    ("I submit for good.", "submit", {}),
]
OVERFLOW = (
    "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total "
    "of 5000 tokens: 3976 tokens from the input messages and 1024 tokens for the completion."
)


def as_call(number, thought, name, arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return {"role": "assistant", "content": thought, "tool_calls": [call]}


def as_calls(number, thought, name, arguments):
    """Returns a turn with several calls, one for each line of the command."""
    lines = arguments["command"].splitlines()
    calls = [
        as_call(f"{number}_{place}", thought, name, {"command": line}) for place, line in enumerate(lines)
    ]
    return calls[0] | {"tool_calls": [call["tool_calls"][0] for call in calls]}


def as_xml(number, thought, name, arguments):
    inner = "".join(f"<parameter={key}>{value}</parameter>\n" for key, value in arguments.items())
    return {"role": "assistant", "content": f"{thought}\n\n<function={name}>\n{inner}</function>"}


def as_block(number, thought, name, arguments):
    block = f"```mswea_bash_command\n{arguments['command']}\n```"
    return {"role": "assistant", "content": f"{thought}\n\n{block}"}


def answer(body, plan, form):
    """Returns (status, reply). Certain words in the issue make the service fail."""
    said = json.dumps(body["messages"][:3])
    turns = sum(message["role"] == "assistant" for message in body["messages"])
    if "OVERFLOW" in said and turns:
        return 400, {"object": "error", "message": OVERFLOW, "type": "BadRequestError", "code": 400}
    if "ENDLESS" in said:
        plan = [("Again.", "bash", {"command": "true"})]
    write = form or (as_call if body.get("tools") else as_xml)
    message = write(turns, *plan[min(turns, len(plan) - 1)])
    reason = "tool_calls" if "tool_calls" in message else "stop"
    choice = {"index": 0, "finish_reason": reason, "message": message}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    reply = {"id": "x", "object": "chat.completion", "created": 1, "model": body["model"]}
    return 200, reply | {"choices": [choice], "usage": usage}


@contextmanager
def planned_model(plan=PLAN, form=None):
    """Serves the plan and yields its address. `requests` contains the bodies that it received."""
    requests = []

    def reply(_, headers, body):
        requests.append(body)
        if headers["Authorization"] != f"Bearer {KEY}":
            return 401, {"error": {"message": "wrong key", "type": "auth", "code": 401}}
        return answer(body, plan, form)

    with json_service(reply) as server:
        server.requests, server.url = requests, f"{server.url}/v1"
        yield server
