"""Emits the values of a question as plain data, one JSON line for each event. Contains no answers. Events:
`["case", number, node id]`, `["end", when, outcome]`, `["value", case, slot, occurrence, part, values]`. Each
line begins with its sequence number. pytest also loads this module as a plugin (`-p`), so that the module
knows which test runs."""

import hashlib
import json
import os
import threading

from canonical_data import Canon, digest
from opened_files import Needs

CHANNEL = "SWELAB_QUESTION_CHANNEL"
NEEDS = "SWELAB_QUESTION_NEEDS"
CASES = "question_cases.json"
MAX_TOTAL, MAX_TEST, MAX_VALUE, MAX_OCCURRENCES = 8_000_000, 200_000, 8_000, 400
MAX_PARTS = 100  # occurrences of a receiver or argument; each may be large and is read completely
_OF_THE_RUNNER = {
    "_pytest.outcomes.OutcomeException",
    "_pytest.runner.OutcomeException",
    "unittest.case.SkipTest",
}
SMALL = 100  # bytes: values up to this size are always emitted in full


class _Cut:
    """A placeholder for a value that was removed."""

    def __repr__(self):
        return "CUT"

    def __iter__(self):
        return iter(())

    def __call__(self, *args, **keywords):
        return self


CUT = _Cut()


class _Speaker:
    """Writes to the channel, and counts the bytes that this test and all tests have emitted."""

    def __init__(self):
        self.where = os.environ.pop(CHANNEL, "")
        self.stream, self.pid, self.lock = None, os.getpid(), threading.RLock()
        self.sequence = self.total = 0
        self.new_case(0)

    def new_case(self, number):
        self.case, self.spent, self.nodes, self.counts, self.rest = number, 0, 0, {}, {}

    def say(self, event):
        """Writes an event if there is a channel with room for it. A forked child writes nothing."""
        if not self.where or os.getpid() != self.pid:
            return
        with self.lock:
            text = json.dumps([self.sequence] + event, separators=(",", ":")) + "\n"
            self.total += len(text)
            if self.total > MAX_TOTAL:
                return
            if self.stream is None:
                where = int(self.where) if self.where.isdigit() else self.where
                self.stream = open(where, "wb", buffering=0)
            self.sequence += 1
            self.stream.write(text.encode("ascii"))

    def emit(self, slot, part, values, most=MAX_OCCURRENCES):
        """Emits one occurrence, or adds it to a common hash after `most` occurrences. Large values become
        digests, and so do most values after MAX_TEST bytes in one test."""
        with self.lock:
            at = self.counts[slot, part] = self.counts.get((slot, part), 0) + 1
            if at <= most:
                self.say(["value", self.case, slot, at, part, [self.value(each) for each in values]])
            else:
                self.add_rest(slot, part, values)

    def add_rest(self, slot, part, values):
        """Adds the values of a further occurrence to a common hash, which is emitted when the test ends."""
        if part == "v":
            told = json.dumps([self.value(each) for each in values])
            self.rest.setdefault(slot, hashlib.sha256()).update(told.encode("ascii"))

    def end_case(self):
        """Emits the hashes of further occurrences at the end of a test."""
        for slot, told in sorted(self.rest.items()):
            self.say(["value", self.case, slot, 1, "rest", [["h", "rest", told.hexdigest()[:32]]]])
        self.rest = {}

    def value(self, value):
        if value is CUT:
            return ["cut"]
        canon = Canon(self.nodes)
        data = canon.of(value)
        self.nodes = canon.nodes
        size = len(json.dumps(data))
        if size > MAX_VALUE or (size > SMALL and self.spent > MAX_TEST):
            data, size = digest(data), SMALL
        self.spent += size
        return data


_speaker = _Speaker()


def emit(slot, *operands):
    """Emits the operands of an assertion."""
    _speaker.emit(slot, "v", operands)


def part(slot, number, value):
    """Emits the value of a receiver or an argument. Returns the value."""
    _speaker.emit(slot, f"s{number}", [value], MAX_PARTS)
    return value


def result(slot, number, value):
    """Emits what a call returned in a test without assertions, unless that is None. Returns the value."""
    if value is not None:
        _speaker.emit(slot, f"r{number}", [value])
    return value


def _outcome(slot, operands, questions):
    emit(slot, *operands)
    if not any(each is CUT for each in operands):
        _speaker.emit(slot, "op", [_answer(each, *operands) for each in questions])


def _answer(question, left, right):
    try:
        return bool(question(left, right))
    except Exception as error:
        return type(error).__name__


def same(slot, left, right):
    """Emits two operands, and the results of `==`, `!=` and `is` on them."""
    _outcome(slot, (left, right), (lambda a, b: a == b, lambda a, b: a != b, lambda a, b: a is b))


def among(slot, left, right):
    """Emits two operands, and the results of `in` and `not in` on them."""
    _outcome(slot, (left, right), (lambda a, b: a in b, lambda a, b: a not in b))


def ordered(slot, left, right):
    """Emits two operands, and the results of `<`, `<=`, `>` and `>=` on them."""
    questions = (lambda a, b: a < b, lambda a, b: a <= b, lambda a, b: a > b, lambda a, b: a >= b)
    _outcome(slot, (left, right), questions)


def _ends_the_test(error):
    """Returns whether the test runner uses this exception to skip, fail or leave a test."""
    names = {f"{each.__module__}.{each.__name__}" for each in type(error).__mro__}
    return bool(names & _OF_THE_RUNNER) or isinstance(error, GeneratorExit)


class Caught:
    """Replaces pytest.raises and assertRaises: suppresses the exception, and emits it."""

    def __init__(self, slot, expected):
        self.slot, self.expected, self.raised = slot, expected, None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if error is not None and _ends_the_test(error):
            return False
        if error is not None:
            self.raised = self.value = self.exception = error
            self.type, self.tb, self.typename = type(error), trace, type(error).__name__
        emit(self.slot, error, *self.expected)
        return True

    def match(self, *args, **keywords):
        """Replaces pytest's method. Always returns True, since the pattern was removed."""
        return True

    def __getattr__(self, name):
        if name.startswith("__") or self.__dict__.get("raised") is None:
            raise AttributeError(name)
        from _pytest._code import ExceptionInfo

        error = self.raised
        made = getattr(ExceptionInfo, "from_exc_info", ExceptionInfo)  # pytest >= 6 deprecates the latter
        return getattr(made((type(error), error, error.__traceback__)), name)

    def __str__(self):
        return repr(self.raised)


def caught(slot, *expected):
    """Returns a context manager that emits the exception that its block raises."""
    return Caught(slot, expected)


def caught_call(slot, expected, function, *args, **keywords):
    """Calls `function` and emits the exception that it raises."""
    context = Caught(slot, expected)
    with context:
        function(*args, **keywords)
    return context


class Warned:
    """Replaces pytest.warns and assertWarns: emits the warnings."""

    def __init__(self, slot, expected):
        import warnings

        self.slot, self.expected = slot, expected
        self.context, self.simplefilter = warnings.catch_warnings(record=True), warnings.simplefilter

    def __enter__(self):
        self.list = self.context.__enter__()
        self.simplefilter("always")
        return self

    def __exit__(self, kind, error, trace):
        self.context.__exit__(kind, error, trace)
        if error is not None:
            return False
        self.warnings = self.list
        if self.list:
            first = self.list[0]
            self.warning, self.filename, self.lineno = first.message, first.filename, first.lineno
        emit(self.slot, [(each.category, str(each.message)) for each in self.list], *self.expected)
        return False

    def __getitem__(self, index):
        return self.list[index]

    def __len__(self):
        return len(self.list)

    def __iter__(self):
        return iter(self.list)

    def pop(self, *kinds):
        """Replaces pytest's method. Removes the first warning and returns it."""
        return self.list.pop(0)


def warned(slot, *expected):
    """Returns a context manager that emits the warnings of its block at the end."""
    return Warned(slot, expected)


def warned_call(slot, expected, function, *args, **keywords):
    """Calls `function`, emits the warnings that it raised, and returns its result."""
    with Warned(slot, expected):
        return function(*args, **keywords)


_needs = Needs() if os.environ.pop(NEEDS, "") else None


def pytest_sessionfinish(session, exitstatus):
    """Emits the files that the run needed, if `NEEDS` is set. If there is a channel, ends the process."""
    if _needs is not None and _needs.watches:
        patterns = list(map(str, session.config.getini("python_files")))
        _speaker.say(["needs", patterns, sorted(_needs.paths)])
    if _speaker.stream is not None:
        os._exit(int(exitstatus))


_numbers = {}


def pytest_collection_finish(session):
    """Numbers the tests of each function in the order of collection, and keeps only the selected cases."""
    path, cases, counts, chosen = os.path.join(os.path.dirname(__file__), CASES), {}, {}, []
    if os.path.exists(path):
        with open(path) as stream:
            cases = json.load(stream)
    for item in session.items:
        base = item.nodeid.split("[")[0]
        number = _numbers[item.nodeid] = counts.get(base, 0)
        counts[base] = number + 1
        if number in cases.get(os.path.basename(base.split("::")[0]), [number]):
            chosen.append(item)
    session.items[:] = chosen


def pytest_runtest_logstart(nodeid, location):
    """Emits which test begins."""
    _speaker.new_case(_numbers.get(nodeid, 0))
    _speaker.say(["case", _speaker.case, nodeid[:2000]])


def pytest_runtest_logreport(report):
    """Emits the outcome of a phase of the test."""
    _speaker.end_case()
    if report.when == "call" or report.outcome != "passed":
        _speaker.say(["end", report.when, report.outcome])
