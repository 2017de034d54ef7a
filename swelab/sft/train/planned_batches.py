"""Converts the forward passes of a plan to tensors, for torchtune and TRL.
A pack contains the lengths of its rows. Positions restart with each row, and attention stays within a row."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.utils.data import Dataset, Sampler

from swelab.records import Record
from swelab.sft.train.batches import Plan, read_plan
from swelab.sft.train.cross_entropy import TrainedTokensLoss
from swelab.sft.train.token_rows import IGNORED, Sample, TokenRows


class PaddedBatch(NamedTuple):
    """Samples padded on the right. Each tensor is [rows, longest]. attends: False for padding."""

    tokens: torch.Tensor
    labels: torch.Tensor
    attends: torch.Tensor


class PackedBatch(NamedTuple):
    """Samples joined to one sequence. tokens, labels and positions are [tokens]; lengths is [rows]."""

    tokens: torch.Tensor
    labels: torch.Tensor
    positions: torch.Tensor
    lengths: torch.Tensor


class PlannedPasses(Dataset[list[Sample]]):
    """One rank's forward passes in one epoch. Each item is a list of samples: one forward pass."""

    def __init__(self, plan: Plan, rows: TokenRows, rank: int):
        self.plan, self.rows, self.rank = plan, rows, rank
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Switches to the forward passes of an epoch."""
        self.passes = self.plan.epochs[epoch][self.rank :: self.plan.ranks]

    def __len__(self) -> int:
        return len(self.passes)

    def __getitem__(self, index: int) -> list[Sample]:
        return [self.rows[row] for row in self.passes[index]]


class InOrder(Sampler[Any]):
    """Samples a dataset's items in order. Also sets the dataset's epoch."""

    def __init__(self, dataset: PlannedPasses):
        self.dataset = dataset

    def set_epoch(self, epoch: int) -> None:
        """Sets the dataset's epoch."""
        self.dataset.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[Any]:
        return iter(range(len(self.dataset)))


def planned_passes(plan: str, data_files: str, base: str, rank: int) -> PlannedPasses:
    """Returns the forward passes of one rank.
    plan: path of the plan. data_files: path of the rows. base: folder of the tokenizer."""
    return PlannedPasses(read_plan(plan), TokenRows(data_files, base), rank)


def pad_rows(samples: Sequence[Sample], pad: int) -> PaddedBatch:
    """Returns a forward pass as a batch whose rows are padded to the same length."""
    longest = max(len(sample.tokens) for sample in samples)

    def fill(rows: Iterable[list[int]], value: int) -> torch.Tensor:
        return torch.tensor([row + [value] * (longest - len(row)) for row in rows])

    lengths = torch.tensor([[len(sample.tokens)] for sample in samples])
    return PaddedBatch(
        fill((sample.tokens for sample in samples), pad),
        fill((sample.labels for sample in samples), IGNORED),
        torch.arange(longest)[None, :] < lengths,
    )


def pack(samples: Sequence[Sample]) -> PackedBatch:
    """Returns the samples of a forward pass as one pack."""
    lengths = [len(sample.tokens) for sample in samples]
    return PackedBatch(
        torch.tensor([token for sample in samples for token in sample.tokens]),
        torch.tensor([label for sample in samples for label in sample.labels]),
        torch.cat([torch.arange(length) for length in lengths]),
        torch.tensor(lengths),
    )


def torchtune_batch(batch: Sequence[Any], *, fill: int | None, pad: int) -> Record:
    """Returns the arguments of torchtune's models for a forward pass. `batch` contains one forward pass.

    fill: length in tokens to which a pack is padded. Block attention is compiled for one length. If `fill` is
    None, the rows are padded and not packed.
    """
    from torchtune.data import padded_collate_packed

    (samples,) = batch
    if fill is None:
        found = pad_rows(samples, pad)
        return {"tokens": found.tokens, "labels": found.labels}
    one = pack(samples)
    room = fill - len(one.tokens)
    rest = torch.zeros(room, dtype=torch.long)
    filled = {
        "tokens": torch.cat([one.tokens, rest + pad]),
        "labels": torch.cat([one.labels, rest + IGNORED]),
        "input_pos": torch.cat([one.positions, rest]),
        "seq_lens": torch.cat([one.lengths, torch.tensor([room] * (room > 0), dtype=torch.long)]),
    }
    batch_of_one: Record = padded_collate_packed([filled])
    return batch_of_one


def over_plan(kind: type) -> type:
    """Returns a subclass of a torchtune recipe whose batches are the forward passes of a plan."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    base: Any = kind

    class OverPlan(base):
        def setup(self, cfg: Any) -> None:
            """Calls torchtune's `setup`. Then a TrainedTokensLoss takes over the model's output layer."""
            super().setup(cfg)
            if isinstance(self._loss_fn, TrainedTokensLoss):
                self._loss_fn.take_over(self._model)

        def _setup_data(self, cfg_dataset: Any, *_: Any, **__: Any) -> StatefulDataLoader:
            dataset = planned_passes(**cfg_dataset, rank=getattr(self, "dp_rank", 0))
            plan, pad = dataset.plan, self._tokenizer.pad_id
            limit = plan.max_seq_len if plan.how == "packed" else None
            collate = partial(torchtune_batch, fill=limit, pad=pad)
            return StatefulDataLoader(dataset, batch_size=1, sampler=InOrder(dataset), collate_fn=collate)

    return OverPlan


def trl_batch(batch: Sequence[Any], *, packed: bool, pad: int) -> dict[str, torch.Tensor]:
    """Returns arguments for transformers' models, from a batch that contains one forward pass.
    A pack has positions instead of a mask. The models find the beginnings of rows from the positions."""
    (samples,) = batch
    if packed:
        one = pack(samples)
        return {
            "input_ids": one.tokens[None],
            "labels": one.labels[None],
            "position_ids": one.positions[None],
        }
    found = pad_rows(samples, pad)
    return {
        "input_ids": found.tokens,
        "labels": found.labels,
        "attention_mask": found.attends.long(),
    }
