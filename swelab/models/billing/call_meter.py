"""Meters the calls of a hosted model: reserves each call's worst-case cost, and later bills the true cost."""

import sys
from dataclasses import dataclass
from types import TracebackType

from swelab.models.billing.ledger import PAID, REFUSED, UNSURE, Ledger, dollars
from swelab.models.billing.prices import NANO, CallTokens, Price
from swelab.records import InputError, Record


@dataclass
class Bill:
    """One admitted call, as a context manager. A call whose end is unknown is billed at its worst-case cost.
    call: the call's name in the ledger, or '' for a call without a known price."""

    ledger: Ledger
    price: Price | None
    call: str
    worst: int
    amount: int = 0
    how: str = UNSURE

    def __enter__(self) -> "Bill":
        self.amount = self.worst
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.call:
            self.ledger.settle(self.call, self.amount, self.how)
        elif self.how != REFUSED:
            self.ledger.note_unpriced()

    def refuse(self) -> None:
        """Records that the service did not charge for the call."""
        self.amount, self.how = 0, REFUSED

    def pay(self, usage: CallTokens | None) -> Record:
        """Bills the call. Returns fields for the message: "cost" in dollars, and "cost_is" if the cost is not
        exact."""
        if self.price is None:
            return {"cost": 0.0, "cost_is": "unknown"}
        if usage is None:
            return {"cost": self.worst / NANO, "cost_is": "at most"}
        self.amount, self.how = self.price.cost(usage), PAID
        if self.amount > self.worst:
            text = f"a call cost {dollars(self.amount)}, more than its worst case of {dollars(self.worst)}"
            print(f"warning: {text}: the service counted other tokens", file=sys.stderr, flush=True)
        return {"cost": self.amount / NANO}


class Meter:
    """Admits and bills the calls of one run. Raises InputError if there is a limit but no known price."""

    def __init__(self, ledger: Ledger, price: Price | None, model: str, cost_limit: float = 0):
        self.ledger, self.price = ledger, price
        if price is None and (ledger.budget is not None or cost_limit > 0):
            what = (
                "budget_dollars of the policy" if ledger.budget is not None else "cost_limit of the scaffold"
            )
            expected = "price: {input: ..., output: ...} in the policy, dollars per million tokens"
            raise InputError(f"{what} is set, and no price of {model} is known", expected=expected)
        if price is None:
            print(
                f"warning: no price of {model} is known: costs are not counted", file=sys.stderr, flush=True
            )

    def admit(self, prompt: int, completion: int) -> Bill:
        """Reserves the cost of a call with at most this many prompt and completion tokens. Raises
        BudgetSpent."""
        if self.price is None:
            return Bill(self.ledger, None, "", 0)
        worst = self.price.worst(prompt, completion)
        return Bill(self.ledger, self.price, self.ledger.reserve(worst), worst)

    def check(self, completion: int) -> None:
        """Raises BudgetSpent if even a call without a prompt would exceed the rest of the budget."""
        if self.price:
            self.ledger.check(self.price.worst(0, completion))
