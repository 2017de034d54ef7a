"""A fake service with OpenAI's chat completions, which waits before it answers (`benchmarks.evaluate`).

`python -m benchmarks.evaluate_model SECONDS.json` prints its address. The file maps instance ids to seconds,
which are divided equally among the answers to an instance. The first answer edits, and the second submits.
"""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

ID = re.compile(r"tiny__\d{6}")
SUBMIT = "git diff > /tmp/p && echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat /tmp/p"
COMMANDS = ("sed -i 's/x = 2/x = 1/' a.py", SUBMIT)
"""The commands in the answers to an instance, in order."""
USAGE = {"prompt_tokens": 2000, "completion_tokens": 50, "total_tokens": 2050}


def completion(body: dict[str, Any], seconds: dict[str, float]) -> tuple[float, dict[str, Any]]:
    """Returns (seconds to wait, answer) for a request."""
    messages = body["messages"]
    match = ID.search("".join(str(each["content"]) for each in messages[:2]))
    turn = sum(each["role"] == "assistant" for each in messages)
    command = COMMANDS[min(turn, len(COMMANDS) - 1)]
    text = f"THOUGHT: turn {turn}.\n\n```mswea_bash_command\n{command}\n```"
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    head = {"id": "x", "object": "chat.completion", "created": 1, "model": body["model"]}
    wait = seconds.get(match[0], 0.0) / len(COMMANDS) if match else 0.0
    return wait, head | {"choices": [choice], "usage": USAGE}


async def serve(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: dict[str, float]
) -> None:
    """One connection."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = re.search(r"content-length: (\d+)", head)
            body = await reader.readexactly(int(length[1])) if length else b""
            if head.startswith("get"):
                wait, reply_body = 0.0, {"object": "list", "data": [{"id": "fake", "object": "model"}]}
            else:
                wait, reply_body = completion(json.loads(body), seconds)
            await asyncio.sleep(wait)
            data = json.dumps(reply_body).encode()
            reply = (
                f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
            )
            writer.write(reply.encode() + data)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main() -> None:
    seconds = json.loads(Path(sys.argv[1]).read_text())
    server = await asyncio.start_server(lambda *ends: serve(*ends, seconds), "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
