"""Keeps the ledger of a run, so that all processes that share a folder stay within the run's budget.

The ledger is an append-only file. A call is entered with its worst-case cost before it is sent, and with its
true cost when it ends. Readers and writers lock the file itself. If a process is killed, its lock is
released. On a network file system, the lock also makes a process read fresh data. Open calls of ended
processes count with their worst-case cost, because nobody knows what the service charged for them.
"""

import dataclasses
import errno
import fcntl
import json
import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from swelab.jobs.journal import lock
from swelab.models import BudgetSpent
from swelab.models.billing.prices import NANO
from swelab.records import InputError, line
from swelab.records.typed import TypedRecord, field

PAID, REFUSED, UNSURE, CUT_OFF = "paid", "refused", "unsure", "cut off"
"""The ways in which a call ends: answered, not charged, perhaps charged, or interrupted by a kill. In the
last two cases the worst-case cost counts."""
LOOK_AGAIN_SECONDS = 0.5
BLOCK_BYTES = 1 << 20


class Entry(TypedRecord):
    """A line of a ledger."""

    call: str = field("name of the call: <process>-<number>")
    how: str = field("open, unpriced, or how the call ended")
    nanodollars: int = field("maximum cost while the call is open, then its cost", default=0)
    at: float = field("end of the call, in seconds since 1970", default=0.0)


@dataclass
class Account:
    """Sums of a ledger, in nanodollars and numbers of calls. open: worst-case cost of each call in flight."""

    spent: int = 0
    calls: int = 0
    unsure: int = 0
    unsure_calls: int = 0
    unpriced: int = 0
    open: dict[str, int] = dataclasses.field(default_factory=dict)

    def enter(self, entry: "Entry") -> None:
        """Adds one line of the file. Raises KeyError, TypeError or ValueError if the line is not an entry."""
        name, amount, how = str(entry.call), int(entry.nanodollars), entry.how
        if amount < 0:
            raise ValueError(amount)
        if how == "open":
            self.open[name] = amount
        elif how == "unpriced":
            self.unpriced += 1
        elif self.open.pop(name, None) is not None:
            self.spent += amount
            self.calls += 1
            if how in (UNSURE, CUT_OFF):
                self.unsure += amount
                self.unsure_calls += 1

    @property
    def bound(self) -> int:
        """The spent nanodollars, if every call in flight costs its worst case."""
        return self.spent + sum(self.open.values())


class Ledger:
    """The ledger at `path`, for the threads of one process. budget: in dollars, or None for no limit. Calls
    of ended processes are closed with their worst-case cost. Raises InputError if the file is damaged."""

    def __init__(self, path: str | Path, budget: float | None, where: str = ""):
        self.path, self.where = Path(path), where
        self.budget = None if budget is None else int(budget * NANO)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        self._account, self._offset = Account(), 0
        self._threads = threading.Lock()
        self._count = 0
        self._name = secrets.token_hex(6)
        with self._locked_account():
            self._alive = lock(self._owner(self._name))
            self._bury()

    def _owner(self, name: str) -> Path:
        return self.path.with_suffix(".owners") / f"{name}.lock"

    @contextmanager
    def _locked_account(self) -> Iterator[Account]:
        """Yields the current account, which no other thread or process changes within the block."""
        with self._threads:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                self._catch_up()
                yield self._account
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def _catch_up(self) -> None:
        """Reads the entries that were written since the last read."""
        rest = b""
        while block := os.pread(self._file, BLOCK_BYTES, self._offset + len(rest)):
            *texts, rest = (rest + block).split(b"\n")
            for text in texts:
                self._enter(text)
                self._offset += len(text) + 1
        if rest:
            # The process that wrote this line ended before the line was on disk, so it had not sent the call.
            os.ftruncate(self._file, self._offset)

    def _enter(self, text: bytes) -> None:
        try:
            self._account.enter(Entry.of(json.loads(text)))
        except (ValueError, KeyError, TypeError, AttributeError):
            what = f"damaged at byte {self._offset}"
            raise InputError(what, self.path, "one entry a line; money is counted here") from None

    def _write(self, *entries: Entry) -> None:
        text = b"".join(map(line, entries))
        if os.write(self._file, text) != len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        os.fsync(self._file)
        self._offset += len(text)
        for entry in entries:
            self._account.enter(entry)

    def _bury(self) -> None:
        """Closes the calls of ended processes. A process is alive if it holds the lock on the file with its
        name."""
        for name in {call.partition("-")[0] for call in self._account.open} - {self._name}:
            owner = self._owner(name)
            try:
                lock(owner).close()
            except InputError:
                continue
            left = {
                call: amount for call, amount in self._account.open.items() if call.startswith(f"{name}-")
            }
            self._write(*(Entry(call=c, how=CUT_OFF, nanodollars=amount) for c, amount in left.items()))
            owner.unlink(missing_ok=True)

    def reserve(self, worst: int) -> str:
        """Reserves `worst` nanodollars for a call, and returns the call's name.

        Waits as long as running calls may release enough of the budget when they end. Raises BudgetSpent if
        `worst` would not fit even if all running calls were free.
        """
        while True:
            with self._locked_account() as account:
                if self.budget is None or account.bound + worst <= self.budget:
                    self._count += 1
                    call = f"{self._name}-{self._count}"
                    self._write(Entry(call=call, how="open", nanodollars=worst))
                    return call
                self._refuse_beyond(account, worst)
                self._bury()
            time.sleep(LOOK_AGAIN_SECONDS)

    def settle(self, call: str, amount: int, how: str) -> None:
        """Closes a call. amount: cost of the call in nanodollars."""
        with self._locked_account():
            self._write(Entry(call=call, how=how, nanodollars=amount, at=round(time.time(), 3)))

    def note_unpriced(self) -> None:
        """Counts a call without a known price."""
        with self._locked_account():
            self._count += 1
            self._write(Entry(call=f"{self._name}-{self._count}", how="unpriced"))

    def check(self, least: int) -> None:
        """Raises BudgetSpent if the rest of the budget is smaller than `least` nanodollars."""
        with self._locked_account() as account:
            self._refuse_beyond(account, least)

    def account(self) -> Account:
        """Returns the current sums."""
        with self._locked_account() as account:
            return Account(**{**vars(account), "open": dict(account.open)})

    def _refuse_beyond(self, account: Account, worst: int) -> None:
        if self.budget is None or account.spent + worst <= self.budget:
            return
        raise BudgetSpent(
            f"the budget of {dollars(self.budget)} {self.where} has no room for a call of up to"
            f" {dollars(worst)}: {sums_in_words(account)}"
        )

    def close(self) -> None:
        """Closes the ledger for this process. Open calls of this process count as interrupted."""
        with self._locked_account() as account:
            if not any(call.startswith(f"{self._name}-") for call in account.open):
                self._owner(self._name).unlink(missing_ok=True)
        self._alive.close()
        os.close(self._file)


def sums_of(path: Path) -> Account:
    """Returns the sums of a ledger that no process uses now, or zeros if there is no ledger. Raises
    InputError."""
    if not path.is_file():
        return Account()
    with closing(Ledger(path, None)) as ledger:
        return ledger.account()


def sums_in_words(account: Account) -> str:
    """Formats a ledger's sums for people."""
    text = f"{account.calls} calls cost {dollars(account.spent)}"
    if account.unsure_calls:
        text += (
            f" ({dollars(account.unsure)} of it by {account.unsure_calls} that were cut off or unreadable,"
        )
        text += " counted at their most)"
    if account.unpriced:
        text += f"; {account.unpriced} calls had no known price and are not counted"
    return text


def dollars(amount: int) -> str:
    """Formats nanodollars as dollars, with two decimals, or with four decimals below a dollar."""
    value = amount / NANO
    return f"${value:.2f}" if value >= 0.995 or not amount else f"${value:.4f}"
