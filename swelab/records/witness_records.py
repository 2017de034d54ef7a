"""Records of witness questions: tests that emit values and assert nothing (docs/grading.md).

The values are plain data in the canonical form that `swelab.witness.inside.question_runtime` writes, such as
`["i", "5"]`.
"""

from typing import Any, Literal

from swelab.records.typed import ClosedRecord, Count, field

Standing = Literal["confirmed", "weak", "unconfirmed", "contradicted", "unwitnessed"]
Witnessed = Literal["witnessed", "weakly_witnessed", "not_witnessed", "contradicted"]


class Slot(ClosedRecord):
    """One assertion of a witness question. `cut` says which operands were removed."""

    slot: Count = field("number of the slot in the question")
    test: str = field("node id of the slot's test function, without parameters")
    line: Count = field("line of the assertion in the original module")
    asserts: Literal["compare", "truth", "isinstance", "raises", "warns", "calls"] = field(
        "kind of the assertion"
    )
    ops: list[str] = field("operators of a comparison, between its operands", default=())
    negated: bool = field("whether the assertion is negated", default=False)
    cut: list[bool] = field("for each operand, whether the question does not show it")
    more: dict[str, Any] = field("precision of an approximate comparison", default=None)


class WitnessManifest(ClosedRecord):
    """Describes a task's witness questions: tests, assertions and visible constants. This manifest never
    enters a sandbox."""

    tests: dict[str, str] = field(
        "node id of each test that has a question form -> node id of its function, without parameters"
    )
    unformed: dict[str, str] = field("node id of each test that has no question form -> the reason")
    questions: dict[str, str] = field(
        "path of each question module -> node id of the test function that it was made from"
    )
    slots: list[Slot] = field("the assertions")
    sight: dict[str, list[str]] = field(
        "node id of each test function -> hashes of the constants that its question shows"
    )
    shown: dict[str, list[Any]] = field(
        "node id of each test function -> the constants of its question, as data", default={}
    )


class GoldValue(ClosedRecord):
    """The values that an assertion emits in one of its executions with the gold patch. Only values that are
    equal in all gold runs are recorded."""

    slot: Count = field("number of the assertion")
    at: Count = field("number of the occurrence in the test, from 1")
    part: str = field('"v": the operands; "op": results of operators; "s1": a receiver or argument')
    said: list[Any] = field("values of the operands")
    cut: list[Any] = field(
        "values of the operands that the question does not show; null for other operands", default=()
    )
    held: bool | None = field(
        "whether the relation is true for these values; null if the values cannot show it", default=None
    )
    bits: float = field(
        "number of bits that the value counts; 0 if the code with the bug emits the same value",
        default=0.0,
        minimum=0,
    )
    guess: str = field(
        "simple change of a visible constant that gives the value, or an empty text", default=""
    )


class GoldTest(ClosedRecord):
    """The values that one test emits with the gold patch."""

    case: Count = field("number of the test among the tests of its function")
    occurrences: list[GoldValue] = field("values that are equal in all gold runs")
    bits: float = field("sum of bits over the values in which the bug differs", minimum=0)
    standing: Standing = field("standing of the gold patch's own run")
    reason: str = field("why the test is not confirmed", default="")


class GoldValues(ClosedRecord):
    """The values that a task's witness questions emit with the gold patch. These values are kept on the
    host."""

    tests: dict[str, GoldTest] = field("results keyed by node id")
    bits: float = field("sum of bits over all tests", minimum=0)
    testimony: Witnessed = field("testimony of the gold patch's own run")


class TestTestimony(ClosedRecord):
    """The result of one test's witness question in a run with a patch."""

    __test__ = False
    standing: Standing = field(
        "confirmed: each value agrees with the gold patch's, and one that the bug gets wrong is equal; weak: "
        "only relations that are easy to satisfy hold; unconfirmed: the data cannot show it; contradicted: a "
        "relation is false or a value was not emitted; unwitnessed: the gold patch emits nothing that could "
        "confirm the test"
    )
    reason: str = field("why the test is not confirmed", default="")
    bits: float = field(
        "sum of bits over the confirmed values in which the bug differs", minimum=0, default=0.0
    )


class Testimony(ClosedRecord):
    """The result of all witness questions of a task in a run with a patch."""

    __test__ = False
    testimony: Witnessed = field(
        "witnessed: every test confirmed, at least 8 bits; weakly: some bits, nothing unconfirmed"
    )
    reason: str = field("why the patch is not witnessed", default="")
    bits: float = field("sum of bits over all tests", minimum=0)
    tests: dict[str, TestTestimony] = field("results keyed by node id")
