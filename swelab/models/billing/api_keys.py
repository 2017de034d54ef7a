"""Chooses the API key of each conversation with a hosted model, and the times at which requests may be sent.

A conversation keeps its key, so that the service's prompt cache stays warm. If the service throttles a key,
all threads with that key slow down. If the service refuses the key or its quota is used up, all threads stop
using it.
"""

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from swelab.patience import KEYS
from swelab.records import InputError, Record

SEPARATOR = ":::"
"""Separator of the keys in an environment variable that contains several keys, as in SWE-agent."""
LONGEST_PAUSE_SECONDS = 900.0
"""Maximum pause of a key, in seconds. If the service demands a longer pause, the key is not used again."""


@dataclass
class Key:
    """One API key and its state. Times are those of time.monotonic().

    window: maximum number of concurrent requests. The window is halved when the service throttles the key. It
    grows by one after each full window of answered requests.
    """

    name: str
    secret: str | None
    aside: str = ""
    resume_at: float = 0.0
    request_at: float = 0.0
    tokens_at: float = 0.0
    window: float = math.inf
    under_way: int = 0
    slowed_at: float = -math.inf
    strikes: int = 0

    def ready_at(self) -> float:
        """Returns the earliest time of the next request. A full `window` may delay the request further."""
        return max(self.resume_at, self.request_at, self.tokens_at)


@dataclass
class Pass:
    """Permission to send one request with `key`. start: time of the permission. tokens: estimated size of the
    request."""

    key: Key
    start: float
    tokens: int


def read_keys(names: Sequence[str]) -> list[Key]:
    """Returns the keys in the named environment variables. If no variable is named, returns one key whose
    secret is None, for services without keys. Raises InputError if a variable is not set."""
    keys: dict[str, Key] = {}
    for name in names:
        secrets = [each.strip() for each in os.environ.get(name, "").split(SEPARATOR) if each.strip()]
        if not secrets:
            raise InputError(
                f"environment variable {name} is not set", expected="a key of the model's service"
            )
        for number, secret in enumerate(secrets, 1):
            keys.setdefault(secret, Key(name if len(secrets) == 1 else f"{name}[{number}]", secret))
    return list(keys.values()) or [Key("the service's own key", None)]


@dataclass
class KeyRing:
    """API keys that the threads of a process share.

    rates: requests_per_minute and tokens_per_minute of each key, if known. Requests are spaced evenly to stay
    within these rates. service: name of the service, for messages.
    """

    keys: list[Key]
    rates: Record = field(default_factory=dict)
    warn: Callable[[str], object] = lambda text: print(text, file=sys.stderr, flush=True)
    service: str = ""
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _next: int = 0

    def choose(self, current: Key | None) -> Key:
        """Returns the key `current` if it is still usable, otherwise the next usable key. Raises InputError
        if no key is usable."""
        with self._changed:
            if current and not current.aside:
                return current
            for _ in self.keys:
                key = self.keys[self._next % len(self.keys)]
                self._next += 1
                if not key.aside:
                    return key
        gone = "; ".join(f"{key.name} {key.aside}" for key in self.keys)
        raise InputError(f"no key is left: {gone}", self.service, "a key with quota; finished work is kept")

    def enter(self, key: Key, tokens: int) -> Pass | None:
        """Waits until a request of about `tokens` tokens may be sent. Returns None if the key is no longer
        used."""
        with self._changed:
            while not key.aside:
                now = time.monotonic()
                wait = key.ready_at() - now
                if wait <= 0 and key.under_way < key.window:
                    key.under_way += 1
                    key.request_at = now + self._spacing("requests_per_minute")
                    key.tokens_at = now + tokens * self._spacing("tokens_per_minute")
                    return Pass(key, now, tokens)
                self._changed.wait(wait if wait > 0 else None)
        return None

    def _spacing(self, rate: str) -> float:
        return 60 / self.rates[rate] if rate in self.rates else 0.0

    def leave(self, admitted: Pass, tokens: int | None = None) -> None:
        """Ends a request. tokens: number of tokens that the service counted, or None if there was no
        answer."""
        key = admitted.key
        with self._changed:
            key.under_way -= 1
            if tokens is not None:
                key.tokens_at += (tokens - admitted.tokens) * self._spacing("tokens_per_minute")
                key.window += 1 / key.window
                if admitted.start > key.slowed_at:
                    key.strikes = 0
            self._changed.notify_all()

    def slow(self, admitted: Pass, seconds: float | None) -> None:
        """Pauses a throttled key for `seconds`. If `seconds` is None, each pause in a row is longer than the
        last (exponential back-off). Responses to requests that were sent at the same time count once. Call
        this before `leave`."""
        key, now = admitted.key, time.monotonic()
        if seconds is not None and seconds > LONGEST_PAUSE_SECONDS:
            self.set_aside(key, f"is asked to wait {seconds / 60:.0f} minutes")
            return
        with self._changed:
            if admitted.start > key.slowed_at:
                key.window = max(1.0, min(key.window, key.under_way) / 2)
                key.slowed_at = now
                key.strikes += 1
            pause = KEYS.after(key.strikes) if seconds is None else seconds
            key.resume_at = max(key.resume_at, now + pause)
            self._changed.notify_all()

    def set_aside(self, key: Key, reason: str) -> None:
        """Stops using a key, and warns once."""
        with self._changed:
            first, key.aside = not key.aside, key.aside or reason
            left = sum(not each.aside for each in self.keys)
            self._changed.notify_all()
        if first:
            self.warn(f"warning: {key.name} {reason}; {left} of {len(self.keys)} keys left")
