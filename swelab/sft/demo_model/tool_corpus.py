"""Generates text for a base model that will use the debugger's tools: notes, tool outputs and a call.

As in `base_corpus`, a document begins with a note on one function. The output of an earlier tool call may
follow. The document ends with the line of the note that names the function, and a tool call in JSON. Some
documents only copy names. There is no conversation, no tag around a call, no second step.
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
"""Share of each kind of document. An "index" document ends with a line that only names the function.
Such a line is mostly copied. With few such documents, the model needs long to learn to copy."""
INDEXES = ("{0.identity} {0.test}", "def {0.name}", "{0.test}", "{0.name}")
"""Formats of the last line of an "index" document.
A model that has only seen function names after a path does not copy them in other places."""
COPIES, ONE_FORM = 0.1, 0.3
"""COPIES: share of documents that only copy names. ONE_FORM: share with only one format of INDEXES.

Both shares count from the first document. A model that starts with copies learns to copy in a fifth of the
steps. With all formats from the start, a model did not learn to copy in 2,800 steps.
"""
TEXT_SHAPES = (*FILE_SHAPES, "compare", "scale", "cut")
"""Shapes of the functions in the text."""
LINES_BEFORE = (0, 0, 1, 3, 8, 16)
"""Numbers of small-talk lines before a note.

In a conversation, the definitions of tools are before the task. If every document began with its note, the
model would copy names only from the beginning of a text.
"""
LINES_BETWEEN = (0, 1, 3, 8, 16, 32)
"""Numbers of lines between a note and a tool's output.

In a conversation, earlier turns are between the task and an output. A model that has only seen notes and
outputs close together rewrites the wrong text.
"""
AGAIN = 0.5
"""Share of documents in which the line on the function also occurs before the end, as in an earlier turn."""
PRINTED = 0.7
"""Share of "search" and "look" documents in which pdb has already printed the number to add.
This applies to functions whose correct number is not in the note."""
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
"""Texts from the agent's prompts and tool outputs, to train the tokenizer.

Documents contain words of these texts in random order and without tags. A model that has never seen the
tokens before a note copies nothing from the note.
"""
_WORDS = [word for text in LEXICON if "<tool_call>" not in text for word in text.split() if "_" not in word]
"""Words of LEXICON. Words with an underscore are excluded, because they look like names of functions."""
_VALUE = re.compile(r'": ("(?:[^"\\]|\\.)*"|\d+)')


class ToolWorld(World):
    """The paths and function names that the generated text uses. The paths are those of two-file programs."""

    def __init__(self, archive: bytes, repo: str, heldout_share: float):
        """See `World`."""
        super().__init__(archive, repo, heldout_share)
        self.paths = [f"{package}_{module}.py" for package in PACKAGES for module in MODULES]

    def documents(self, seed: int, count: int) -> Iterator[Document]:
        """Yields `count` documents, copies first. The same seed and count give the same documents."""
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
        """Returns copies of LEXICON, which train only the tokenizer."""
        return [text for text in LEXICON for _ in range(50)]


def _random_lines(rng: random.Random, counts: Sequence[int] = REMARK_COUNTS) -> str:
    """Returns random lines. The number of lines is drawn from `counts`.
    Two thirds of the lines are REMARKS. The others are random words of LEXICON."""
    lines = []
    for _ in range(rng.choice(counts)):
        strewn = rng.random() < 1 / 3
        lines.append(" ".join(rng.choices(_WORDS, k=rng.randint(2, 5))) if strewn else rng.choice(REMARKS))
    return "".join(f"{line}\n" for line in lines)


def copies(rng: random.Random, functions: Sequence[Function]) -> Document:
    """Returns a document with one line for each function: its name, test, path or id.
    The same lines follow, in the same or a random order."""
    lines = [rng.choice((each.name, each.test, each.path, each.identity)) + "\n" for each in functions]
    again = rng.sample(lines, len(lines)) if rng.random() < 0.5 else lines
    return Document("".join(lines), "", "".join(again))


def tool_document(
    rng: random.Random, function: Function, mutation: Mutation, indexes: Sequence[str] = INDEXES
) -> Document:
    """Generates a document about a bug in a function. indexes: formats for the last line of an "index"."""
    issue_text = issue(rng, function, mutation)
    note = _random_lines(rng, LINES_BEFORE) + issue_text + "\n" + _random_lines(rng)
    kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
    if kind == "index":
        return Document(note, "", rng.choice(indexes).format(function) + "\n")
    request = asked_line(issue_text, function.name)
    note += _again(rng, request) + _random_lines(rng, LINES_BETWEEN)
    start = rng.randint(1, LAST_LINE)
    if kind == "begin":
        return _asking(note, "", request, "pdb", {"command": "start", "file": function.test})
    if kind == "print":
        case = rng.choice(function.asserts)
        seen = f"{start} ->\t    assert {case}\n" + _random_lines(rng)
        return _asking(note, seen, request, "pdb", {"command": print_command(mutation, case)})
    if mutation.op == "offset_change" and (kind == "rewrite" or rng.random() < PRINTED):
        number = function.body[mutation.line].rpartition(" ")[2]
        request = asked_line(issue_text, function.name, number)
        note += f"{number}\n" + _random_lines(rng) + _again(rng, request)
    if kind == "search":
        return _asking(note, "", request, "grep", {"pattern": f"def {function.name}"})
    if kind == "look":
        found = f"{function.path}:{start}:{function.lines()[0]}\n" + _random_lines(rng)
        place = {"path": function.path, "start": start, "end": start + 2}
        return _asking(note, found, request, "view", place)
    return _rewritten(rng, note, request, function, mutation, start)


def _again(rng: random.Random, request: str) -> str:
    """Returns the line on the function and random lines, like an earlier turn.
    Returns "" with probability 1 - AGAIN."""
    return f"{request}\n" + _random_lines(rng) if rng.random() < AGAIN else ""


def _rewritten(
    rng: random.Random, note: str, request: str, function: Function, mutation: Mutation, start: int
) -> Document:
    """Returns a document with a listing of the buggy function and the call that repairs it."""
    at = 1 + mutation.line
    lines = (function.lines(mutation) + [""])[:3]
    width = len(str(start + 2))
    seen = f"{function.path}, lines {start} to {start + 2} of {rng.randint(start + 2, LAST_LINE + 2)}:\n"
    seen += "".join(f"  {start + i:>{width}} {line}\n" for i, line in enumerate(lines)) + _random_lines(rng)
    code = f"    {function.lines()[at].strip()}"
    place: Record = {"path": function.path, "start": start + at, "new_code": code}
    return _asking(note, seen, request, "rewrite", place)


def print_command(mutation: Mutation, case: str) -> str:
    """Returns a command for pdb. case: an expression `call == value` from the test.
    The command prints the result of the call, or the number to add if the bug is a wrong number."""
    called, _, expected = case.rpartition(" == ")
    if mutation.op == "offset_change":
        return f"p {expected} - {called.partition('(')[2].rstrip(')')}"
    return f"p {called}"


def _asking(note: str, shown: str, request: str, name: str, arguments: Record) -> Document:
    """Returns a document that ends with the line `request` and a tool call."""
    call = json.dumps({"name": name, "arguments": arguments}) + "\n"
    start = len(request) + 1
    values = [(start + found.start(1), start + found.end(1)) for found in _VALUE.finditer(call)]
    return Document(note, shown, f"{request}\n{call}", ((0, start), *values))
