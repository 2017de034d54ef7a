"""Converts any Python value to canonical plain data: JSON lists whose first element is the kind.

`["n"]` None, `["b", true]` bool, `["i", "5"]` int, `["f", "1.5"]` float,
`["s", text]` str, `["y", hex]` bytes,
`["l", [...]]` list, `["t", [...]]` tuple, `["q", [...]]` deque, `["S", [...]]` set,
`["d", [[key, value], ...]]` dict,
`["e", class, member]` enum member; for IntEnum and similar classes also the number or text as data,
`["T", class]` class, `["F", function]` function, `["M", module]` module,
`["r", kind, repr]` other plain value, `["v", kind, [...]]` view of a dict,
`["E", class, bases, args, text]` exception,
`["A", expected, rel, abs]` approximation, `["K", calls, count]` mock,
`["O", class, [[attribute, value], ...], items or null]` other object,
`["R", class, repr]` object that only has a repr,
`["opaque", class]`, `["cycle", up]`, `["big", class]` values without information,
`["h", kind, hash]` digest of large data.

For a subclass of a plain type, the class name is the last element. Texts do not contain the addresses of
objects.
"""

import collections
import contextlib
import datetime
import decimal
import enum
import fractions
import hashlib
import json
import pathlib
import re
import types
import uuid
import warnings

MAX_DEPTH, MAX_VIEW = 30, 500
MAX_NODES, MAX_TEST_NODES, MAX_LENGTH = 40_000, 1_500_000, 2_000_000
MAX_TEXT = 8_000
_REPR = (
    datetime.datetime,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    datetime.timezone,
    decimal.Decimal,
    fractions.Fraction,
    pathlib.PurePath,
    uuid.UUID,
    range,
    slice,
    complex,
)
_SEQUENCES = ((list, "l"), (tuple, "t"), (collections.deque, "q"))
_VIEWS = (type({}.keys()), type({}.values()), type({}.items()))
_MATCH = type(re.match("", ""))
_ADDRESS = re.compile(" at 0x[0-9a-fA-F]{6,16}")  # address of an object: differs between runs
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)


def name_of(cls):
    """Returns the module and name of a class. Bypasses the metaclass, which may report other names."""
    of = type.__getattribute__
    return f"{of(cls, '__module__')}.{of(cls, '__qualname__')}"


def digest(data):
    """Returns a short replacement for large data: the kind and a hash.

    The hash does not depend on the order of a dict.
    """
    text = json.dumps(_in_order(data)).encode("ascii")
    return ["h", data[0], hashlib.sha256(text).hexdigest()[:32]]


def _in_order(data):
    if not isinstance(data, list):
        return data
    if data and data[0] == "d":
        return ["d", sorted((_in_order(each) for each in data[1]), key=json.dumps)] + data[2:]
    return [_in_order(each) for each in data]


class _TooLarge(BaseException):
    """Raised if a value, or all values of a test together, have too many parts."""


def _large(value):
    """Returns a short replacement for a value with too many parts.

    For a list, tuple, dict or set, the replacement is a hash of the value's repr.
    """
    kinds = {list: "l", tuple: "t", dict: "d", set: "S", frozenset: "S"}
    if type(value) in kinds and len(value) <= MAX_LENGTH:
        with contextlib.suppress(Exception):
            text = repr(value).encode("utf-8", "surrogatepass")
            return ["h", kinds[type(value)], hashlib.sha256(text).hexdigest()[:32]]
    return ["big", name_of(type(value))]


class Canon:
    """Converts values to canonical data. `nodes` counts the parts of all values of the test so far."""

    def __init__(self, nodes=0):
        self.nodes, self.start = nodes, nodes
        self.stack = []

    def of(self, value):
        """Returns the data of a value. Never raises."""
        try:
            return self(value)
        except _TooLarge:
            return _large(value)
        except Exception as error:
            return ["opaque", "error " + type(error).__name__]

    def __call__(self, value):
        self.nodes += 1
        if self.nodes - self.start > MAX_NODES or self.nodes > MAX_TEST_NODES:
            raise _TooLarge
        scalar = self.scalar(value, type(value))
        if scalar is not None:
            return scalar
        if any(value is each for each in self.stack):
            return ["cycle", len(self.stack) - [value is each for each in self.stack].index(True)]
        if len(self.stack) >= MAX_DEPTH:
            return ["big", name_of(type(value))]
        self.stack.append(value)
        try:
            return self.compound(value, type(value))
        except RecursionError:
            return ["big", name_of(type(value))]
        finally:
            self.stack.pop()

    def scalar(self, value, cls):
        if value is None:
            return ["n"]
        if value is Ellipsis or value is NotImplemented:
            return ["r", "constant", repr(value)]
        if cls is bool:
            return ["b", value]
        if isinstance(value, enum.Enum):
            plain = self.plain(value, cls)
            return ["e", name_of(cls), str(value._name_ or repr(value))] + ([plain[:2]] if plain else [])
        return self.plain(value, cls)

    def plain(self, value, cls):
        """Returns the data of a number, text or bytes. The value may be an instance of a subclass."""
        if isinstance(value, int):
            small = int.bit_length(value) < 10_000
            return [
                "i",
                int.__repr__(int.__index__(value)) if small else hex(int.__index__(value)),
            ] + _subclass(cls, int)
        if isinstance(value, float):
            return ["f", float.__repr__(value)] + _subclass(cls, float)
        if isinstance(value, str):
            return _text(str.__str__(value) if cls is str else "".join(str.__iter__(value)), cls)
        if isinstance(value, (bytes, bytearray, memoryview)):
            data = bytes(value)
            if len(data) > MAX_TEXT:
                return ["h", "y", hashlib.sha256(data).hexdigest()[:32]]
            return ["y", data.hex()] + _subclass(cls, bytes)
        return None

    def compound(self, value, cls):
        for kind, word in _SEQUENCES:
            if isinstance(value, kind):
                return [word, [self(each) for each in kind.__iter__(value)]] + _subclass(cls, kind)
        if isinstance(value, collections.OrderedDict):
            items = collections.OrderedDict.items(value)
            return ["d", [[self(k), self(v)] for k, v in items], name_of(cls), "ordered"]
        if isinstance(value, dict):
            return ["d", [[self(k), self(v)] for k, v in dict.items(value)]] + _subclass(cls, dict)
        for kind in (set, frozenset):
            if isinstance(value, kind):
                items = sorted((self(each) for each in kind.__iter__(value)), key=json.dumps)
                return ["S", items] + _subclass(cls, kind)
        if isinstance(value, type):
            return ["T", name_of(value)]
        if isinstance(value, BaseException):
            bases = [name_of(each) for each in cls.__mro__[:-1]]
            return [
                "E",
                name_of(cls),
                bases,
                self(BaseException.__dict__["args"].__get__(value)),
                self.text(value),
            ]
        return self.simple(value, cls) or self.object(value, cls)

    def simple(self, value, cls):
        """Converts functions, modules and standard library values to plain data.

        Returns None for any other value.

        If a repr is stored for a value, the repr describes the value completely.
        """
        if isinstance(value, _FUNCTIONS):
            return ["F", f"{getattr(value, '__module__', '')}.{value.__qualname__}"]
        if isinstance(value, types.MethodType):
            return ["F", "method." + getattr(value.__func__, "__qualname__", "?"), self(value.__self__)]
        if isinstance(value, types.ModuleType):
            return ["M", str(value.__dict__.get("__name__"))]
        for kind in _REPR:
            if isinstance(value, kind):
                return ["r", kind.__name__, cls.__repr__(value)]
        if isinstance(value, type(re.compile(""))):
            return ["r", "Pattern", repr((value.pattern, value.flags))]
        if isinstance(value, _MATCH):
            return ["r", "Match", repr((value.span(), value.groups()))]
        if isinstance(value, _VIEWS):
            return ["v", cls.__name__, [self(each) for each in value]]
        module = str(cls.__module__)
        if module == "typing" or cls.__name__ in ("GenericAlias", "UnionType"):
            return ["r", "typing", repr(value)]
        if module.startswith("_pytest") and cls.__name__.startswith("Approx"):
            return ["A", self(value.expected), self(value.rel), self(value.abs)]
        if module == "unittest.mock" and hasattr(cls, "mock_calls"):
            return ["K", self([tuple(each) for each in value.mock_calls]), self(value.call_count)]
        if hasattr(cls, "__next__"):
            return ["opaque", name_of(cls)]
        return None

    def object(self, value, cls):
        state = _state(value, cls)
        items = self.items(value, cls)
        if state or items is not None:
            told = [
                [str(key), self(each)] for key, each in sorted(state.items(), key=lambda item: str(item[0]))
            ]
            return ["O", name_of(cls), told, items]
        if cls.__repr__ is not object.__repr__:
            text = repr(value)
            if type(text) is str and " at 0x" not in text:
                return ["R", name_of(cls), text[:MAX_TEXT]]
        return ["opaque", name_of(cls)]

    def items(self, value, cls):
        """Returns the elements of a collection of an unknown class, or None."""
        if not all(hasattr(cls, each) for each in ("__len__", "__iter__", "__contains__")):
            return None
        result = []
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for each in value:
                    result.append(self([each, value[each]] if hasattr(cls, "keys") else each))
                    if len(result) > MAX_VIEW:
                        break
        except Exception:
            return None
        return result

    def text(self, error):
        try:
            return self(str(error))
        except Exception:
            return ["n"]


def _subclass(cls, kind):
    return [] if cls is kind else [name_of(cls)]


def _text(text, cls):
    text = _ADDRESS.sub(" at 0x", text)
    if len(text) > MAX_TEXT:
        return ["h", "s", hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]]
    return ["s", text] + _subclass(cls, str)


def _state(value, cls):
    """Returns the attributes in __dict__ and slots. Bypasses the class, which may report other attributes."""
    state = {}
    with contextlib.suppress(Exception):
        state.update(object.__getattribute__(value, "__dict__"))
    for each in cls.__mro__:
        slots = each.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot in ("__weakref__", "__dict__"):
                continue
            private = slot.startswith("__") and not slot.endswith("__")
            mangled = f"_{each.__name__.lstrip('_')}{slot}" if private else slot
            with contextlib.suppress(Exception):
                state[slot] = each.__dict__[mangled].__get__(value)
    return state
