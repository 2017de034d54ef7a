"""Opens the service that all rollouts of a hosted policy share, as the policy's recipe says."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from swelab.configs.experiment import key_variables, service_of
from swelab.configs.kinds.policy import HostedPolicy
from swelab.configs.kinds.scaffold import MiniLoop, SweAgentScaffold
from swelab.models.billing.api_keys import KeyRing, read_keys
from swelab.models.billing.call_meter import Meter
from swelab.models.billing.ledger import Ledger, sums_in_words
from swelab.models.billing.prices import price_of
from swelab.models.chat.hosted import Service
from swelab.models.chat.litellm_calls import listed_price


@contextmanager
def open_service(
    policy: HostedPolicy, name: str, scaffold: MiniLoop | SweAgentScaffold, entries: Path
) -> Iterator[Service]:
    """Opens the service of a hosted policy. entries: path of the policy's ledger.

    Prints the cost of the run so far at the end. Raises BudgetSpent, and InputError for unusable keys, an
    unknown model, or a limit without a known price.
    """
    rates = policy.rates.plain() if policy.rates else {}
    keys = KeyRing(read_keys(key_variables(policy)), rates, service=service_of(policy))
    price = price_of(policy.price.plain() if policy.price else None, listed_price(policy.model))
    ledger = Ledger(entries, policy.budget_dollars, f"of policy {name}")
    try:
        meter = Meter(ledger, price, policy.model, scaffold.cost_limit)
        service = Service(
            policy.model,
            policy.sampling,
            keys,
            meter,
            policy.api_base,
            policy.cache_last_messages or 0,
        )
        meter.check(policy.sampling.max_tokens)
        try:
            yield service
        finally:
            print(f"{name}: {sums_in_words(ledger.account())}", file=sys.stderr, flush=True)
    finally:
        ledger.close()
