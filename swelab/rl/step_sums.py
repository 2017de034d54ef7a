"""Sums figures over the trained tokens of a step, on one rank or on several."""

from dataclasses import dataclass, field

from torch import Tensor


@dataclass
class Sums:
    """The sum and the largest value of each figure over trained tokens."""

    tokens: int = 0
    totals: dict[str, float] = field(default_factory=dict)
    largest: dict[str, float] = field(default_factory=dict)

    def add(self, mask: Tensor, **values: Tensor) -> None:
        """Adds the values at the tokens in `mask`."""
        self.tokens += int(mask.sum())
        for name, value in values.items():
            self.totals[name] = self.totals.get(name, 0.0) + float(value[mask].double().sum())

    def most(self, mask: Tensor, **values: Tensor) -> None:
        """Keeps the largest of the values at the tokens in `mask`."""
        for name, value in values.items() if mask.any() else ():
            self.largest[name] = max(self.largest.get(name, 0.0), float(value[mask].max()))

    def join(self, other: "Sums") -> None:
        """Adds the figures of `other`."""
        self.tokens += other.tokens
        for name, total in other.totals.items():
            self.totals[name] = self.totals.get(name, 0.0) + total
        for name, value in other.largest.items():
            self.largest[name] = max(self.largest.get(name, 0.0), value)

    def means(self) -> dict[str, float]:
        """Returns the mean per token of each summed figure, and each largest value."""
        return {name: total / self.tokens for name, total in self.totals.items()} | self.largest
