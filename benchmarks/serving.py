"""Compares tokens per second of the CPU server with transformers' `generate`, on the turns of conversations.

    .venv/bin/python -m benchmarks.serving --weights results/sft/smollm2/checkpoint \\
        --rows results/sft/smollm2/dataset.jsonl [--conversations 16] [--tokens 32] [--dtype bfloat16]

Each assistant turn of a conversation is one request: the messages before it, and an answer of `--tokens`
tokens. Turns of a conversation follow each other; as many conversations as the setting says run at once. So
the server can reuse the part of a prompt that it has read; `generate` reads each prompt anew, in batches of
the same size, sorted by length. A server with sglang's own attention runs, too. Every side has one thread.

Prints output tokens a second of each side by requests at once, then ratio_vs_generate=... and
ratio_vs_sglang=... at the largest number at once.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import httpx
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from swelab.configs.kinds.policy import Job
from swelab.console.option_types import at_least
from swelab.console.terminal import run_script
from swelab.models.serving.fleet import open_fleet
from swelab.models.serving.server import Endpoint
from swelab.records import Record, read_jsonl

CACHE = 16384
TEMPERATURE = 0.6


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--weights", type=Path, required=True, help="folder in Hugging Face layout")
    add("--rows", type=Path, required=True, help="training rows: JSON lines with messages")
    add("--conversations", type=at_least(1), default=16, help="number of conversations")
    add("--tokens", type=at_least(1), default=32, help="tokens of each answer")
    add("--context", type=at_least(1), default=2048, help="the server's context in tokens")
    add("--dtype", choices=["float32", "bfloat16"], default="bfloat16", help="data type of the weights")
    add("--at-once", type=at_least(1), nargs="*", default=[1, 16], help="numbers of requests at once")
    return parser.parse_args()


def turns(messages: list[Record]) -> Iterator[list[Record]]:
    """Yields what precedes each assistant turn."""
    plain = [{"role": each["role"], "content": each["content"]} for each in messages]
    for place, message in enumerate(plain):
        if message["role"] == "assistant":
            yield plain[:place]


async def converse(endpoint: Endpoint, conversations: list[list[Record]], at_once: int, tokens: int) -> int:
    """Returns the number of output tokens of all turns."""
    free = asyncio.Semaphore(at_once)
    body = {"model": endpoint.model, "max_tokens": tokens, "temperature": TEMPERATURE, "ignore_eos": True}
    headers = {"Authorization": f"Bearer {endpoint.api_key}"}

    async def one(messages: list[Record]) -> int:
        count = 0
        async with free:
            for prompt in turns(messages):
                answer = await client.post(
                    f"{endpoint.url}/chat/completions", json={**body, "messages": prompt}, headers=headers
                )
                answer.raise_for_status()
                count += answer.json()["usage"]["completion_tokens"]
        return count

    async with httpx.AsyncClient(timeout=None) as client:
        return sum(await asyncio.gather(*map(one, conversations)))


def server_speeds(
    args: argparse.Namespace, conversations: list[list[Record]], plugins: str
) -> dict[int, float]:
    """Returns output tokens per second by requests at once. plugins: sglang's plugins to load, or all."""
    speeds = {}
    for at_once in args.at_once:  # a server each, whose cache is empty
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.dict(os.environ, {"SGLANG_PLUGINS": plugins} if plugins else {}),
            open_fleet(
                args.weights,
                job=Job(),
                name="model",
                device="cpu",
                dtype=args.dtype,
                context_length=args.context,
                max_total_tokens=CACHE,
                max_running_requests=max(args.at_once),
                log=Path(folder, "server.log"),
                startup_seconds=600,
            ) as (_, endpoint),
        ):
            start = time.monotonic()
            count = asyncio.run(converse(endpoint, conversations, at_once, args.tokens))
            speeds[at_once] = count / (time.monotonic() - start)
    return speeds


def generate_speeds(args: argparse.Namespace, conversations: list[list[Record]]) -> dict[int, float]:
    """Returns output tokens per second of transformers' `generate` by batch size."""
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(args.weights, padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(args.weights, dtype=getattr(torch, args.dtype)).eval()
    texts = [
        tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
        for messages in conversations
        for prompt in turns(messages)
    ]
    texts.sort(key=len)
    speeds = {}
    for size in args.at_once:
        start = time.monotonic()
        for first in range(0, len(texts), size):
            batch = tokenizer(
                texts[first : first + size], return_tensors="pt", padding=True, add_special_tokens=False
            )
            model.generate(
                **batch,
                min_new_tokens=args.tokens,
                max_new_tokens=args.tokens,
                do_sample=True,
                temperature=TEMPERATURE,
                pad_token_id=tokenizer.pad_token_id,
            )
        speeds[size] = len(texts) * args.tokens / (time.monotonic() - start)
    return speeds


def main() -> None:
    args = options()
    conversations = [row["messages"] for row in read_jsonl(args.rows)][: args.conversations]
    requests = sum(len(list(turns(messages))) for messages in conversations)
    print(f"{len(conversations)} conversations, {requests} requests, {args.tokens} tokens each, {args.dtype}")
    sides = {
        "ours": lambda: server_speeds(args, conversations, ""),
        "sglang": lambda: server_speeds(args, conversations, "none"),
        "generate": lambda: generate_speeds(args, conversations),
    }
    speeds = {}
    for name, measure in sides.items():
        speeds[name] = measure()
        for at_once, speed in speeds[name].items():
            print(f"{name:10} {at_once:3} at once {speed:8.1f} output tokens/s", flush=True)
    most = max(args.at_once)
    for name in ("generate", "sglang"):
        print(f"ratio_vs_{name}={speeds['ours'][most] / speeds[name][most]:.2f}")


if __name__ == "__main__":
    run_script(main)
