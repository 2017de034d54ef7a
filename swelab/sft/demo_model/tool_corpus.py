"""Text for a base model that is to act by the debugger's tools: notes, what tools show, and one call.

As in `base_corpus`, a document is a note on one function and one line at its end: here the note's line on the
function, said again, and the JSON of a call. Between them stands what the tool before that call shows. There
is no conversation, no tag around a call, no second step.
"""

import json
import random
import re
from collections.abc import Iterator, Sequence

from swelab.models.chat.scripted_debugging import asked_line
from swelab.records import Record
from swelab.sft.demo_model.base_corpus import LAST_LINE, REMARK_COUNTS, REMARKS, Document, World
from swelab.tasks.drill_text import FILE_SHAPES, MODULES, PACKAGES, Function, Mutation, issue, make_function

KINDS = {"index": 0.2, "search": 0.16, "look": 0.08, "begin": 0.14, "print": 0.12, "rewrite": 0.3}
"""Shares of documents. In an index most words are copied: without many of them copying is learned late."""
INDEXES = ("{0.identity} {0.test}", "def {0.name}", "{0.test}", "{0.name}")
"""Lines of an index. A model that has seen a function's name after a path alone copies it nowhere else."""
COPIES, ONE_FORM = 0.1, 0.3
"""Shares of all documents: the first COPIES are copies; up to ONE_FORM an index has one form, then any.

A model that starts with copies learns to copy in a fifth of the steps; with all forms at once it did not
learn it in 2,800."""
TEXT_SHAPES = (*FILE_SHAPES, "compare", "scale", "cut")
"""Shapes of function that the text draws from."""
LINES_BEFORE = (0, 0, 1, 3, 8, 16)
"""How many lines of small talk stand before a note, where a conversation has the definitions of tools. A
model whose notes all begin a document copies a name only from a document's beginning."""
LINES_BETWEEN = (0, 1, 3, 8, 16, 32)
"""How many lines stand between a note and what a tool shows, where a conversation has its earlier turns. A
model that only saw both close together rewrites something else."""
AGAIN = 0.5
"""Share of documents in which the note's line is said again once more: in a conversation, at each turn."""
PRINTED = 0.7
"""Share of searches and looks, of those for an unknown number, that come after pdb printed it."""
LEXICON = (
    "system\nuser\nassistant\ntool\n",
    "Fix the bug.\n",
    '<tool_call>\n{"name": "view", "arguments": {}}\n</tool_call>',
    "pdb(command, runner, file)\nview(path, start, end, include_line_numbers_and_breakpoints)\n"
    "rewrite(path, start, end, new_code)\neval()\ngrep(pattern, path, max_results)\n",
    ">>>>>>>>>>>>>>>>>>>>>>>>>>>>>>>>> PDB runcall >>>>>>>>>>>>>>>>>>>>>>>>>>>>>>>>>>\n",
    "was rewritten:\n--- a/\n+++ b/\n@@ -1,5 +1,5 @@\n",
    "The running pdb session has the old code; it starts anew at the next pdb command.\n",
    ", lines 2 to 4 of 32:\n",
    "Nothing was done: no tool was called.\nCall one tool like this:\n",
)
"""Words of the scaffold: they get tokens of their own. In documents they occur in no order, without tags: of
tokens that it never saw before a note, the model copies nothing."""
_WORDS = [word for text in LEXICON if "<tool_call>" not in text for word in text.split() if "_" not in word]
"""Words with an underscore are left out: strewn into a note they look like a function's name."""
_VALUE = re.compile(r'": ("(?:[^"\\]|\\.)*"|\d+)')


class ToolWorld(World):
    """Names for the generated text, in programs of two files."""

    def __init__(self, archive: bytes, repo: str, heldout_share: float):
        """See `World`."""
        super().__init__(archive, repo, heldout_share)
        self.paths = [f"{package}_{module}.py" for package in PACKAGES for module in MODULES]

    def documents(self, seed: int, count: int) -> Iterator[Document]:
        """`count` documents, copies first; the same seed and count give the same ones."""
        rng = random.Random(seed)
        for at in range(count):
            if at < COPIES * count:
                yield copies(rng, [self._function(rng) for _ in range(rng.randint(2, 6))])
                continue
            function = self._function(rng)
            forms = INDEXES if at >= ONE_FORM * count else INDEXES[:1]
            yield tool_document(rng, function, rng.choice(function.mutations), forms)

    def _function(self, rng: random.Random) -> Function:
        name, path = rng.choice(self.names), rng.choice(self.paths)
        return make_function(rng, name, path, rng.choice(TEXT_SHAPES))

    def lexicon(self) -> list[str]:
        """Further text for the vocabulary alone."""
        return [text for text in LEXICON for _ in range(50)]


def _filled(rng: random.Random, counts: Sequence[int] = REMARK_COUNTS) -> str:
    """As many lines as `counts` says: small talk, and every third some words of the scaffold in no order."""
    lines = []
    for _ in range(rng.choice(counts)):
        strewn = rng.random() < 1 / 3
        lines.append(" ".join(rng.choices(_WORDS, k=rng.randint(2, 5))) if strewn else rng.choice(REMARKS))
    return "".join(f"{line}\n" for line in lines)


def copies(rng: random.Random, functions: Sequence[Function]) -> Document:
    """A name of each function, and the same names again, in the same order or in another."""
    lines = [rng.choice((each.name, each.test, each.path, each.identity)) + "\n" for each in functions]
    again = rng.sample(lines, len(lines)) if rng.random() < 0.5 else lines
    return Document("".join(lines), "", "".join(again))


def tool_document(
    rng: random.Random, function: Function, mutation: Mutation, indexes: Sequence[str] = INDEXES
) -> Document:
    """A document about a bug of a function; `indexes` are forms of an index's line."""
    told = issue(rng, function, mutation)
    note = _filled(rng, LINES_BEFORE) + told + "\n" + _filled(rng)
    kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
    if kind == "index":
        return Document(note, "", rng.choice(indexes).format(function) + "\n")
    asked = asked_line(told, function.name)
    note += _again(rng, asked) + _filled(rng, LINES_BETWEEN)
    start = rng.randint(1, LAST_LINE)
    if kind == "begin":
        return _asking(note, "", asked, "pdb", {"command": "start", "file": function.test})
    if kind == "print":
        case = rng.choice(function.asserts)
        seen = f"{start} ->\t    assert {case}\n" + _filled(rng)
        return _asking(note, seen, asked, "pdb", {"command": printed(mutation, case)})
    if mutation.op == "offset_change" and (kind == "rewrite" or rng.random() < PRINTED):
        number = function.body[mutation.line].rpartition(" ")[2]
        asked = asked_line(told, function.name, number)
        note += f"{number}\n" + _filled(rng) + _again(rng, asked)
    if kind == "search":
        return _asking(note, "", asked, "grep", {"pattern": f"def {function.name}"})
    if kind == "look":
        found = f"{function.path}:{start}:{function.lines()[0]}\n" + _filled(rng)
        place = {"path": function.path, "start": start, "end": start + 2}
        return _asking(note, found, asked, "view", place)
    return _rewritten(rng, note, asked, function, mutation, start)


def _again(rng: random.Random, request: str) -> str:
    """Sometimes the note's line, as an earlier turn said it."""
    return f"{request}\n" + _filled(rng) if rng.random() < AGAIN else ""


def _rewritten(
    rng: random.Random, note: str, request: str, function: Function, mutation: Mutation, start: int
) -> Document:
    """A listing of the function with the bug, and the call that repairs it."""
    at = 1 + mutation.line
    lines = (function.lines(mutation) + [""])[:3]
    width = len(str(start + 2))
    seen = f"{function.path}, lines {start} to {start + 2} of {rng.randint(start + 2, LAST_LINE + 2)}:\n"
    seen += "".join(f"  {start + i:>{width}} {line}\n" for i, line in enumerate(lines)) + _filled(rng)
    code = f"    {function.lines()[at].strip()}"
    place: Record = {"path": function.path, "start": start + at, "new_code": code}
    return _asking(note, seen, request, "rewrite", place)


def printed(mutation: Mutation, case: str) -> str:
    """Returns pdb's command for a case: it prints the number to add, or the function's value."""
    called, _, expected = case.rpartition(" == ")
    if mutation.op == "offset_change":
        return f"p {expected} - {called.partition('(')[2].rstrip(')')}"
    return f"p {called}"


def _asking(note: str, shown: str, request: str, name: str, arguments: Record) -> Document:
    """A document that ends with two lines: the note's request and a call of a tool."""
    call = json.dumps({"name": name, "arguments": arguments}) + "\n"
    start = len(request) + 1
    values = [(start + found.start(1), start + found.end(1)) for found in _VALUE.finditer(call)]
    return Document(note, shown, f"{request}\n{call}", ((0, start), *values))
