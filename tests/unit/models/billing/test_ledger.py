"""The ledger of paid calls: prices, and a budget that holds across threads, processes and kills."""

import json
import random
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from swelab.models import BudgetSpent
from swelab.models.billing import ledger
from swelab.models.billing.call_meter import Meter
from swelab.models.billing.ledger import CUT_OFF, PAID, REFUSED, UNSURE, Ledger, dollars, sums_in_words
from swelab.models.billing.prices import NANO, CallTokens, Price, nano, price_of
from swelab.records import InputError
from tests.conftest import ROOT
from tests.contract.attacks import PATIENCE, until

CENT = NANO // 100
SPENDER = """
import sys, threading, random
from swelab.models import BudgetSpent
from swelab.models.billing import ledger
ledger.LOOK_AGAIN_SECONDS = 0.01
book = ledger.Ledger(sys.argv[1], float(sys.argv[2]))
first = book.reserve(1)  # still open when the process is killed
print("open", flush=True)
input()
def spend(seed):
    chance = random.Random(seed)
    try:
        for _ in range(int(sys.argv[3])):
            worst = chance.randrange(1, 10**7)
            call = book.reserve(worst)
            book.settle(call, chance.randrange(worst + 1), "paid")
    except BudgetSpent:
        pass
threads = [threading.Thread(target=spend, args=(n,)) for n in range(4)]
[each.start() for each in threads]
[each.join() for each in threads]
book.settle(first, 1, "paid")
book.close()
"""


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(ledger, "LOOK_AGAIN_SECONDS", 0.01)


def entries(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def spenders(count, path, budget, calls):
    """Starts processes that spend at the same time. All open the ledger before any is released."""
    code, pipe = [sys.executable, "-c", SPENDER, path, budget, calls], subprocess.PIPE
    runs = [subprocess.Popen([*map(str, code)], cwd=ROOT, stdin=pipe, stdout=pipe) for _ in range(count)]
    assert [run.stdout.readline() for run in runs] == [b"open\n"] * count
    for run in runs:
        run.stdin.write(b"go\n")
        run.stdin.flush()
    return runs


def most_at_once(rows):
    """Returns the maximum of spent money plus admitted worst cases."""
    spent, admitted, most = 0, {}, 0
    for row in rows:
        if row["how"] == "open":
            admitted[row["call"]] = row["nanodollars"]
        elif admitted.pop(row["call"], None) is not None:
            spent += row["nanodollars"]
        most = max(most, spent + sum(admitted.values()))
    assert not admitted
    return most


def test_calls_are_admitted_with_their_worst_and_billed_with_their_cost(tmp_path):
    book = Ledger(tmp_path / "l.jsonl", 0.10)
    first, second, third = (book.reserve(worst) for worst in (6 * CENT, 3 * CENT, CENT))
    book.settle(first, 2 * CENT, PAID)
    book.settle(second, 0, REFUSED)
    book.settle(third, CENT, UNSURE)
    account = book.account()
    assert (account.spent, account.calls, account.unsure, account.open) == (3 * CENT, 3, CENT, {})
    assert sums_in_words(account) == (
        "3 calls cost $0.0300 ($0.0100 of it by 1 that were cut off or unreadable, counted at their most)"
    )
    with pytest.raises(BudgetSpent, match=r"the budget of \$0.1000 .*no room for a call of up to \$0.0701"):
        book.reserve(7 * CENT + 10**5)
    book.settle(book.reserve(7 * CENT), 7 * CENT, PAID)
    with pytest.raises(BudgetSpent):
        book.check(1)
    book.close()
    assert not list((tmp_path / "l.owners").iterdir())


def test_a_call_waits_for_room_that_calls_in_flight_may_leave(tmp_path, monkeypatch):
    book, looks = Ledger(tmp_path / "l.jsonl", 0.10), []
    first = book.reserve(9 * CENT)

    def look_again(seconds):
        looks.append(seconds)
        assert len(looks) <= 3 and not book._threads.locked()
        if len(looks) == 3:
            book.settle(first, CENT, PAID)

    monkeypatch.setattr(ledger, "time", SimpleNamespace(time=time.time, sleep=look_again))
    book.settle(book.reserve(5 * CENT), CENT, PAID)
    assert len(looks) == 3
    book.close()


def test_a_raised_budget_goes_on_where_the_ledger_is(tmp_path):
    for budget in (0.02, 0.05):
        book = Ledger(tmp_path / "l.jsonl", budget)
        with pytest.raises(BudgetSpent):
            while True:
                book.settle(book.reserve(CENT), CENT, PAID)
        assert book.account().spent == budget * NANO
        book.close()


def test_processes_and_threads_at_once_never_exceed_a_budget(tmp_path):
    path, budget = tmp_path / "l.jsonl", 0.4
    runs = spenders(2, path, budget, 1000)
    assert [run.wait(PATIENCE) for run in runs] == [0, 0]
    rows = entries(path)
    assert len({row["call"].partition("-")[0] for row in rows}) == 2
    assert 0.9 * budget * NANO < most_at_once(rows) <= budget * NANO


def test_a_killed_process_counts_with_its_worst_and_holds_nobody_up(tmp_path):
    path = tmp_path / "l.jsonl"
    (run,) = spenders(1, path, 1000, 10**6)
    assert until(lambda: path.stat().st_size > 5000, PATIENCE)
    run.send_signal(signal.SIGKILL)
    run.wait()
    with open(path, "ab") as stream:
        stream.write(b'{"call": "torn')
    before = path.read_bytes().rpartition(b"\n")[0].splitlines()
    left = {}
    for row in map(json.loads, before):
        if row["how"] == "open":
            left[row["call"]] = row["nanodollars"]
        else:
            del left[row["call"]]
    assert left
    book = Ledger(path, None)
    cut = [row for row in entries(path)[len(before) :] if row["how"] == CUT_OFF]
    assert {row["call"]: row["nanodollars"] for row in cut} == left
    assert book.account().unsure_calls == len(left) and not book.account().open
    book.close()
    assert not list((tmp_path / "l.owners").iterdir())


def test_a_living_process_is_not_taken_for_a_dead_one(tmp_path):
    first = Ledger(tmp_path / "l.jsonl", 1.0)
    call = first.reserve(CENT)
    second = Ledger(tmp_path / "l.jsonl", 1.0)
    assert second.account().open == {call: CENT}
    first.settle(call, 5, PAID)
    assert second.account().spent == 5
    first.close()
    second.close()


@pytest.mark.parametrize("line", ["{}", "[]", '{"call": "a-1", "how": "open", "nanodollars": -5}', "x"])
def test_a_damaged_ledger_is_one_line_not_a_fresh_budget(tmp_path, line):
    path = tmp_path / "l.jsonl"
    path.write_text('{"call": "a-1", "how": "open", "nanodollars": 5}\n' + line + "\n")
    with pytest.raises(InputError, match=r"l.jsonl: damaged at byte 49; expected one entry a line"):
        Ledger(path, 1.0)


def test_a_large_ledger_is_read_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger, "BLOCK_BYTES", 100)
    book = Ledger(tmp_path / "l.jsonl", None)
    for _ in range(20):
        book.settle(book.reserve(7), 7, PAID)
    again = Ledger(tmp_path / "l.jsonl", None)
    assert again.account().spent == 140
    again.close()
    book.close()


LISTED = {
    "input_cost_per_token": 3e-6,
    "output_cost_per_token": 15e-6,
    "cache_read_input_token_cost": 0.3e-6,
    "cache_creation_input_token_cost": 3.75e-6,
    "input_cost_per_token_above_200k_tokens": 6e-6,
    "output_cost_per_token_above_200k_tokens": 22.5e-6,
    "input_cost_per_token_batches": 1.5e-6,
    "mode": "chat",
}


def test_prices_by_table_by_recipe_and_by_length():
    price = price_of(None, LISTED)
    usage = CallTokens(prompt=1000, completion=100, cached=600, written=300)
    assert price.cost(usage) == nano(100 * 3e-6 + 600 * 0.3e-6 + 300 * 3.75e-6 + 100 * 15e-6)
    assert price.cost(CallTokens(200_001, 10)) == nano(200_001 * 6e-6 + 10 * 22.5e-6)
    recipe = price_of({"input": 2, "output": 10, "cached_input": 0.5}, LISTED)
    assert recipe.cost(CallTokens(1000, 100, 600)) == nano(400 * 2e-6 + 600 * 0.5e-6 + 100 * 10e-6)
    assert price_of(None, {}) is None
    assert price_of(None, {"input_cost_per_token": 0.0, "output_cost_per_token": 0.0}) is None
    assert price_of({"input": 0, "output": 0}, LISTED).cost(CallTokens(1000, 100)) == 0


def test_no_call_costs_more_than_its_worst_case():
    chance = random.Random(0)
    for price in (price_of(None, LISTED), Price({"input_cost_per_token": 1e-6})):
        for _ in range(2000):
            most, answer = chance.randrange(1, 400_000), chance.randrange(1, 9000)
            prompt = chance.randrange(1, most + 1)
            cached = chance.randrange(prompt + 1)
            usage = CallTokens(
                prompt, chance.randrange(answer + 1), cached, chance.randrange(prompt - cached + 1)
            )
            assert price.cost(usage) <= price.worst(most, answer)


def test_a_dearer_call_than_its_worst_is_counted_and_told(tmp_path, capsys):
    book = Ledger(tmp_path / "l.jsonl", 1.0)
    with Meter(book, Price({"input_cost_per_token": 1e-3}), "toy").admit(10, 10) as bill:
        bill.pay(CallTokens(prompt=50, completion=1))
    assert book.account().spent == 5 * CENT
    assert "a call cost $0.0500, more than its worst case of $0.0100" in capsys.readouterr().err
    book.close()


def test_an_interrupted_call_counts_with_its_worst(tmp_path):
    book = Ledger(tmp_path / "l.jsonl", 1.0)
    meter = Meter(book, Price({"input_cost_per_token": 1e-3}), "toy")
    with pytest.raises(KeyboardInterrupt), meter.admit(10, 1):
        raise KeyboardInterrupt
    assert book.account().unsure == CENT
    book.close()


def test_calls_without_a_price_are_told_apart(tmp_path):
    book = Ledger(tmp_path / "ledger.jsonl", None)
    for _ in range(3):
        book.note_unpriced()
    told = sums_in_words(book.account())
    book.close()
    assert told == "0 calls cost $0.00; 3 calls had no known price and are not counted"


def test_money_is_told_to_the_cent_or_finer():
    amounts = {0: "$0.00", 5: "$0.0000", 12 * CENT: "$0.1200", 1234567 * 10**6: "$1234.57"}
    assert [dollars(each) for each in amounts] == list(amounts.values())
