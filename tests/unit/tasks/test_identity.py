"""Two patches that make the same change are the same, however their texts write it."""

import pytest

from swelab.tasks.identity import change_hash

PATCH = "diff --git a/m/x.py b/m/x.py\n--- a/m/x.py\n+++ b/m/x.py\n@@ -1,2 +1,2 @@\n a = 1\n-b = 1\n+b = 2\n"


@pytest.mark.parametrize(
    "text",
    [
        PATCH.replace("m/x.py", "m//x.py"),
        PATCH.replace("m/x.py", "./m/./x.py"),
        PATCH.partition("\n")[2],
        PATCH.replace("--- a/m/x.py\n+++ b/m/x.py", '--- "a/m/\\170.py"\n+++ "b/m/\\170.py"'),
        PATCH.replace("@@ -1,2 +1,2 @@", "@@ -11,2 +11,2 @@ def f():"),
        PATCH.replace("\n", "\r\n"),
        "A letter before it.\n\n" + PATCH,
    ],
)
def test_other_texts_of_a_change_have_its_hash(text):
    assert change_hash(text) == change_hash(PATCH)


def test_the_reverse_of_a_change_and_another_change_are_told_apart():
    reverse = PATCH.replace("-b = 1\n+b = 2", "-b = 2\n+b = 1")
    assert change_hash(reverse, backwards=True) == change_hash(PATCH) != change_hash(reverse)
    assert change_hash(PATCH.replace("x.py", "y.py")) != change_hash(PATCH)
