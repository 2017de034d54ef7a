"""Reads the files that an RL training wrote about itself."""

from dataclasses import dataclass, field
from pathlib import Path

from swelab.records import Record, read_jsonl


@dataclass
class RlTraining:
    """A training by reinforcement learning: its lines of metrics.jsonl and validation.jsonl."""

    steps: list[Record] = field(default_factory=list)
    attempts: list[Record] = field(default_factory=list)


def read_rl_training(metrics: Path, validation: Path) -> RlTraining:
    """Reads a training's metrics, and the attempts of its first and last validation. Raises InputError."""
    attempts = [row for row in read_jsonl(validation) if "messages" in row] if validation.is_file() else []
    return RlTraining(list(read_jsonl(metrics)), attempts)
