"""Every mutation operator on a real snippet: minimal, compiling, inside one function."""

import ast

import pytest

from swelab.records import InputError
from swelab.tasks.forge.candidates import candidates
from swelab.tasks.forge.operators import OPERATORS
from swelab.tasks.forge.source import Edit, Source

SNIPPETS = {
    "op_change": ("return (a) + b * 2", {"return (a) - b * 2", "return (a) + b + 2"}),
    "op_swap": ("return a - b", {"return b - a"}),
    "compare_change": ("return a <= b", {"return a < b"}),
    "const_off_by_one": ("return a[1]", {"return a[2]", "return a[0]"}),
    "const_change": (
        "return a.get('key', False)",
        {"return a.get('ke', False)", "return a.get('key', True)"},
    ),
    "bool_negate": ("return not a", {"return a"}),
    "cond_invert": ("return 1 if a else b", {"return 1 if not a else b"}),
    "and_or_swap": ("return a and b and 1", {"return a or b or 1"}),
    "args_swap": ("return f(a, b)", {"return f(b, a)"}),
    "call_change": ("return a.lower()", {"return a.upper()"}),
    "slice_change": ("return a[:b]", {"return a[b:]"}),
    "ternary_swap": ("return a if b else 0", {"return 0 if b else a"}),
    "branch_remove": ("if a:\n        b = 1\n    return b", {"return b"}),
    "return_remove": (
        "if a:\n        return 1\n    return b",
        {"if a:\n        pass\n    return b", "if a:\n        return 1"},
    ),
    "statement_remove": ("a.append(b)\n    return a", {"return a"}),
    "loop_remove": ("for x in a:\n        b += x\n    return b", {"return b"}),
    "try_remove": ("try:\n        return a[b]\n    except KeyError:\n        return None", {"return a[b]"}),
    "loop_jump": (
        "for x in a:\n        if x:\n            continue\n    return b",
        {"for x in a:\n        if x:\n            break\n    return b"},
    ),
}


def source(body: str, name: str = "pack/mod.py") -> Source:
    return Source(name, f"def other(a):\n    pass\n\n\ndef f(a, b):\n    {body}\n\n\nlast = 1\n".encode())


def bodies(body: str, *operators: str) -> set[str]:
    module = source(body)
    found = set()
    for candidate in candidates(module, operators):
        text = module.apply(candidate.edits).decode()
        found.add(text.partition("def f(a, b):\n    ")[2].partition("\n\n\nlast")[0])
    return found


def test_there_is_a_snippet_for_every_operator():
    assert set(SNIPPETS) == set(OPERATORS)
    assert len(OPERATORS) >= 10


@pytest.mark.parametrize("operator", sorted(SNIPPETS))
def test_operator_makes_the_expected_bugs(operator):
    body, expected = SNIPPETS[operator]
    assert bodies(body, operator) == expected


@pytest.mark.parametrize("operator", sorted(SNIPPETS))
def test_a_bug_compiles_differs_and_stays_in_its_function(operator):
    module = source(SNIPPETS[operator][0])
    for candidate in candidates(module, [operator]):
        mutated = ast.parse(module.apply(candidate.edits))
        compile(mutated, "mod.py", "exec")
        old, new = (
            {getattr(node, "name", "last"): ast.dump(node) for node in tree.body}
            for tree in (module.tree, mutated)
        )
        assert {name for name in old if old[name] != new[name]} == {"f"}
        assert candidate.function == "pack/mod.py::f"


@pytest.mark.parametrize(
    "body", ["return f'{a + b}'", "'''a + b, 1 < 2'''", "x: 'a[1]' = None", "return 'pattern: ' % a"]
)
def test_text_annotations_and_format_strings_are_left_alone(body):
    assert bodies(body, "op_change", "op_swap", "const_off_by_one", "compare_change") == set()


def test_a_comment_between_operands_is_not_mistaken_for_the_operator():
    assert bodies("return (a  # + here\n            + b)", "op_change") == set()


def test_not_in_and_is_not_are_one_token():
    assert bodies("return a not  in b", "compare_change") == {"return a in b"}
    assert bodies("return a is not b", "compare_change") == {"return a is b"}


def test_multibyte_text_before_the_bug():
    assert bodies("return 'żółć' + a", "op_change") == {"return 'żółć' - a"}


def test_else_and_elif_go_and_the_if_stays():
    body = "if a:\n        b = 1\n    elif b:\n        b = 2\n    else:\n        b = 3\n    return b"
    assert bodies(body, "branch_remove") == {"if a:\n        b = 1\n    return b"}


def test_statements_that_share_a_line_are_not_removed():
    assert bodies("a.clear(); b.clear()", "statement_remove") == set()
    assert bodies("if a: return b", "return_remove") == set()


def test_removal_never_makes_an_endless_while():
    body = "while a:\n        a -= 1\n    return a"
    assert bodies(body, "statement_remove") == set()


def test_first_assignment_of_a_name_stays():
    assert bodies("x = a\n    return x", "statement_remove") == set()
    assert bodies("x = a\n    x = b\n    return x", "statement_remove") == {"x = a\n    return x"}


def test_nested_functions_belong_to_the_outermost_and_methods_to_their_class():
    text = "class C:\n    def m(self):\n        def inner():\n            return 1\n        return inner\n"
    found = list(candidates(Source("m.py", text.encode()), ["const_off_by_one"]))
    assert {c.function for c in found} == {"m.py::C.m"}
    assert len(found) == 2


def test_functions_in_conditional_blocks_are_found():
    text = "try:\n    import x\nexcept ImportError:\n    def f(a):\n        return a + 1\n"
    names = [name for name, _ in Source("m.py", text.encode()).functions()]
    assert names == ["f"]


def test_unchanged_bytes_come_back():
    data = b"def f():\n    return 1"
    assert Source("m.py", data).apply(()) == data
    at = data.index(b"1")
    assert Source("m.py", data).apply((Edit(at, at + 1, "2"),)) == b"def f():\n    return 2"


@pytest.mark.parametrize("data", [b"def f(:\n", b"\xff\xfe", b"a = 1\r\nb = 2\r\n", b"a\0b\n"])
def test_unusable_sources_are_named(data):
    with pytest.raises(InputError, match=r"pack/bad\.py"):
        Source("pack/bad.py", data)
