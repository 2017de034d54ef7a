"""The policy that is trained: log-probabilities of what was sampled, optimizer steps, its checkpoint.

The model is transformers', so that every architecture that can be served can be trained, and weights are
read and written in Hugging Face layout.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from swelab.records import Fault, InputError
from swelab.rl.losses import LOSSES, Clip, Mismatch, kl_to_reference, mismatch_weights
from swelab.rl.samples import Sample
from swelab.sft.train.grouping import deal, padded_tokens

STATE = "learner.pt"
_CHUNK = 4096
"""Trained tokens whose logits over the vocabulary are in memory at once."""


class NotFinite(Fault):
    """A loss or gradient is no number; the weights are those before the batch."""


@dataclass(frozen=True)
class Settings:
    """How the policy is trained.

    temperature: that of the rollouts. warmup: steps in which the learning rate rises to `lr`. batch_tokens:
    tokens of a forward pass, padding included; a longer sample goes alone. minibatches: optimizer steps a
    batch. kl and entropy: coefficients of the divergence from the start and of the entropy.
    """

    lr: float = 1e-6
    temperature: float = 1.0
    loss: str = "clipped"
    clip: Clip = Clip()
    mismatch: Mismatch = Mismatch()
    kl: float = 0.0
    entropy: float = 0.0
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.1
    max_grad_norm: float = 1.0
    warmup: int = 0
    minibatches: int = 1
    batch_tokens: int = 16384
    dtype: str = "float32"
    recompute: bool = False


@dataclass(frozen=True)
class Trained:
    """A sample, with what each of its tokens is trained with.

    advantages and weights: one a token, 0 where none is trained; a weight is that token's share in the loss
    of the whole batch (`token_weights`). name: of its rollout, for messages.
    """

    sample: Sample
    advantages: Sequence[float]
    weights: Sequence[float]
    name: str = ""


@dataclass
class Sums:
    """What is measured over the trained tokens of a step."""

    tokens: int = 0
    totals: dict[str, float] = field(default_factory=dict)
    largest: dict[str, float] = field(default_factory=dict)

    def add(self, mask: Tensor, **values: Tensor) -> None:
        """Adds values of the tokens in `mask`."""
        self.tokens += int(mask.sum())
        for name, value in values.items():
            self.totals[name] = self.totals.get(name, 0.0) + float(value[mask].double().sum())

    def most(self, mask: Tensor, **values: Tensor) -> None:
        """Keeps the largest values of the tokens in `mask`."""
        for name, value in values.items():
            self.largest[name] = max(self.largest.get(name, 0.0), float(value[mask].max()))

    def means(self) -> dict[str, float]:
        """The mean a token of what was added, and the largest of what was kept."""
        return {name: total / self.tokens for name, total in self.totals.items()} | self.largest


class Learner:
    """A policy, its optimizer, and where needed the policy that it started as."""

    def __init__(self, checkpoint: Path, settings: Settings, device: str = "cpu", start: Path | None = None):
        """Raises InputError when `checkpoint`, or `start` for the divergence, cannot be loaded."""
        self.settings, self.device, self.steps = settings, device, 0
        self.model = _load(checkpoint, settings.dtype, device)
        if settings.recompute:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        self.reference = _load(start or checkpoint, settings.dtype, device) if settings.kl else None
        self._files = checkpoint
        weights = [p for p in self.model.parameters() if p.ndim > 1]
        others = [p for p in self.model.parameters() if p.ndim <= 1]
        groups = [
            {"params": weights, "weight_decay": settings.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=settings.lr, betas=settings.betas)

    def logprobs(self, samples: Sequence[Sample]) -> list[list[float]]:
        """Log-probability of each trained id, after temperature; 0.0 elsewhere. Shapes as ids."""
        found: list[list[float]] = [[] for _ in samples]
        with torch.no_grad():
            for rows in self._passes(samples):
                ids, mask = _padded([samples[row] for row in rows], self.device)
                scored, _ = self._scores(self.model, ids, mask)
                for row, values in zip(rows, scored.tolist(), strict=True):
                    found[row] = values[: len(samples[row].ids)]
        return found

    def train(self, batch: Sequence[Trained]) -> dict[str, float]:
        """One batch: `minibatches` optimizer steps; what was measured.

        Raises NotFinite, with the names of the samples; the weights are then those before that step.
        """
        trained = [each for each in batch if each.sample.trained]
        if not trained:
            return {"tokens": 0.0}
        old = None
        if self.settings.minibatches > 1:
            old = self.logprobs([each.sample for each in trained])
        sums, found = Sums(), {}
        for part in range(min(self.settings.minibatches, len(trained))):
            rows = list(range(part, len(trained), self.settings.minibatches))
            known = [old[row] for row in rows] if old else None
            found = self._step([trained[row] for row in rows], known, sums)
        return {"tokens": float(sums.tokens), **sums.means(), **found}

    def _step(self, batch: list[Trained], old: list[list[float]] | None, sums: Sums) -> dict[str, float]:
        self.optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for rows in self._passes([each.sample for each in batch]):
            loss = self._loss([batch[row] for row in rows], [old[row] for row in rows] if old else None, sums)
            if not torch.isfinite(loss):
                raise NotFinite(f"the loss is {loss.item()} for {', '.join(batch[row].name for row in rows)}")
            loss.backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.max_grad_norm)
        if not torch.isfinite(norm):
            names = ", ".join(each.name for each in batch)
            raise NotFinite(f"the gradient's norm is {norm.item()} for {names}")
        self.steps += 1
        rate = self.settings.lr * min(1.0, self.steps / max(1, self.settings.warmup))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        return {"loss": total, "grad_norm": norm.item(), "lr": rate}

    def _loss(self, batch: list[Trained], old: list[list[float]] | None, sums: Sums) -> Tensor:
        """The share of these samples in the batch's loss, with its gradient."""
        ids, mask = _padded([each.sample for each in batch], self.device)
        logprobs, entropy = self._scores(self.model, ids, mask)
        width = ids.shape[1]
        advantages = _rows([each.advantages for each in batch], width, self.device)
        weights = _rows([each.weights for each in batch], width, self.device)
        engine = _rows([each.sample.logprobs for each in batch], width, self.device)
        before = _rows(old, width, self.device) if old else logprobs.detach()
        losses, cut = LOSSES[self.settings.loss](logprobs, before, advantages, mask, self.settings.clip)
        trust = mismatch_weights(before, engine, mask, self.settings.mismatch)
        losses = losses * trust
        apart = (before - engine).abs()
        measured = {
            "entropy": entropy.detach(),
            "clipped": cut.double(),
            "ratio": torch.exp(logprobs.detach() - before),
            "masked_by_mismatch": (trust == 0).double(),
            "logprob_mismatch": apart,
        }
        if self.reference is not None:
            with torch.no_grad():
                start, _ = self._scores(self.reference, ids, mask)
            divergence = kl_to_reference(logprobs, start, mask)
            losses = losses + self.settings.kl * divergence
            measured["kl"] = divergence.detach()
        if self.settings.entropy:
            losses = losses - self.settings.entropy * entropy
        sums.add(mask, **measured)
        sums.most(mask, logprob_mismatch_max=apart)
        return (losses * weights).sum() * self.settings.minibatches

    def _scores(self, model: Any, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability of each trained id, and the entropy there; 0 elsewhere. [rows, tokens]."""
        hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
        chosen = mask[:, 1:]
        states, targets = hidden[chosen], ids[:, 1:][chosen]
        head = model.get_output_embeddings()
        scored, spread = [], []
        for part, target in zip(states.split(_CHUNK), targets.split(_CHUNK), strict=True):
            logs = (head(part).float() / self.settings.temperature).log_softmax(-1)
            scored.append(logs.gather(1, target[:, None])[:, 0])
            spread.append(-(logs.exp() * logs).sum(-1))
        zeros = torch.zeros(ids.shape, device=ids.device)
        place = torch.nn.functional.pad(chosen, (1, 0))
        return zeros.masked_scatter(place, torch.cat(scored)), zeros.masked_scatter(place, torch.cat(spread))

    def _passes(self, samples: Sequence[Sample]) -> Iterator[list[int]]:
        """Rows that go through the model together, so that little is padded."""
        lengths = [len(sample.ids) for sample in samples]
        dealt, _ = deal([list(range(len(samples)))], lengths, self.settings.batch_tokens, 1, padded_tokens)
        yield from (rows for rows in dealt[0] if rows)

    def save(self, folder: Path) -> None:
        """Writes a checkpoint in Hugging Face layout, with what training needs to go on; whole or not."""
        staged = folder.with_name(f".{folder.name}.part")
        shutil.rmtree(staged, ignore_errors=True)
        shutil.copytree(self._files, staged, ignore=shutil.ignore_patterns("*.safetensors*", STATE))
        self.model.save_pretrained(staged)
        state = {
            "optimizer": self.optimizer.state_dict(),
            "steps": self.steps,
            "random": torch.get_rng_state(),
        }
        torch.save(state, staged / STATE)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(staged, folder)

    def resume(self, folder: Path) -> None:
        """Takes over the optimizer's state from a checkpoint whose weights are loaded. Raises InputError."""
        try:
            state = torch.load(folder / STATE, map_location=self.device, weights_only=True)
            self.optimizer.load_state_dict(state["optimizer"])
            self.steps = state["steps"]
            torch.set_rng_state(state["random"].cpu())
        except (OSError, RuntimeError, ValueError, KeyError, EOFError) as error:
            what = f"no state of the optimizer: {error}"
            raise InputError(what, folder / STATE, "a checkpoint that this training wrote") from None


def _load(checkpoint: Path, dtype: str, device: str) -> Any:
    from transformers import AutoModelForCausalLM

    try:
        model: Any = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=getattr(torch, dtype))
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"not weights that can be trained: {error}", checkpoint) from None
    return model.to(device).eval()  # no dropout: what was sampled had none


def _padded(samples: Sequence[Sample], device: str) -> tuple[Tensor, Tensor]:
    """Ids and mask, [rows, tokens of the longest]; padded at the end, which causal attention does not see."""
    width = max(len(sample.ids) for sample in samples)
    ids = torch.zeros((len(samples), width), dtype=torch.long)
    mask = torch.zeros((len(samples), width), dtype=torch.bool)
    for row, sample in enumerate(samples):
        ids[row, : len(sample.ids)] = torch.tensor(sample.ids)
        mask[row, : len(sample.ids)] = torch.tensor(sample.mask, dtype=torch.bool)
    return ids.to(device), mask.to(device)


def _rows(values: Sequence[Sequence[float]], width: int, device: str) -> Tensor:
    found = torch.zeros((len(values), width))
    for row, each in enumerate(values):
        found[row, : len(each)] = torch.tensor(each)
    return found.to(device)
