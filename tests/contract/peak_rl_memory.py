"""Measures what a step of the learner takes of memory: a recipe's `train` in, bytes out.

In a process of its own, so that the peak that the system counts is that of this step.
"""

import json
import random
import sys
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from swelab.configs import recipes
from swelab.configs.kinds import RL
from swelab.rl.learner import Learner, Trained
from swelab.rl.samples import Sample
from swelab.rl.training_run import settings_of
from swelab.sft.train.step_log import own_peak


def batch(rows: int, tokens: int, vocabulary: int) -> list[Trained]:
    """Samples whose tokens are trained but for the first one."""
    chance, found = random.Random(0), []
    for number in range(rows):
        ids = [chance.randrange(vocabulary) for _ in range(tokens)]
        mask = [0] + [1] * (tokens - 1)
        sample = Sample(ids, mask, [-8.0] * tokens, [trained - 1 for trained in mask])
        found.append(Trained(sample, [1.0] * tokens, [trained / tokens for trained in mask], str(number)))
    return found


def main() -> None:
    folder, recipe = Path(sys.argv[1]), recipes.complete(RL, json.loads(sys.argv[2]), "r")
    torch.set_num_threads(1)
    if not folder.exists():
        AutoModelForCausalLM.from_config(AutoConfig.for_model(**json.loads(sys.argv[3]))).save_pretrained(
            folder
        )
    tokens = recipe.rollouts.context_length
    learner = Learner(folder, settings_of(recipe))
    samples = batch(2 * recipe.train.batch_tokens // tokens, tokens, learner.model.config.vocab_size)
    for _ in range(2):
        learner.train(samples)
    print(own_peak() * 1024)


if __name__ == "__main__":
    main()
