"""The difference of two versions of a file, in time that grows with their lines and not with the square.

difflib compares each line with all equal lines. A file with 20,000 equal lines took it minutes. So lines that
are equal at both ends are left out first. Of what remains, only small parts are compared by difflib. Large
parts are cut at lines that occur once in both versions.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

SMALL = 100_000
"""Maximum product of the numbers of lines of two parts that difflib compares."""
CONTEXT = 3

Block = tuple[int, int, int]
"""(first line in the old version, first line in the new version, number of lines) of a part that is equal in
both. Lines count from 0."""
Change = tuple[int, int, int, int]
"""Lines start to end of the old version are replaced by lines new to new_end of the new version."""


def changes(before: Sequence[str], after: Sequence[str]) -> list[Change]:
    """Returns the changes from one version to the other, in order."""
    found, old, new = list[Change](), 0, 0
    for start, new_start, size in [*_equal(before, after), (len(before), len(after), 0)]:
        if old < start or new < new_start:
            found.append((old, start, new, new_start))
        old, new = start + size, new_start + size
    return found


def diff_lines(before: Sequence[str], after: Sequence[str], path: str) -> Iterator[str]:
    """Yields the lines of a unified diff of the file `path`."""
    groups = list[list[Change]]()
    for change in changes(before, after):
        if groups and change[0] - groups[-1][-1][1] <= 2 * CONTEXT:
            groups[-1].append(change)
        else:
            groups.append([change])
    if groups:
        yield from (f"--- a/{path}", f"+++ b/{path}")
    for group in groups:
        lead = min(group[0][0], group[0][2], CONTEXT)
        start, new = group[0][0] - lead, group[0][2] - lead
        tail = min(len(before) - group[-1][1], CONTEXT)
        end, new_end = group[-1][1] + tail, group[-1][3] + tail
        yield f"@@ -{_range(start, end)} +{_range(new, new_end)} @@"
        for old, old_end, place, place_end in group:
            yield from (f" {line}" for line in before[start:old])
            yield from (f"-{line}" for line in before[old:old_end])
            yield from (f"+{line}" for line in after[place:place_end])
            start = old_end
        yield from (f" {line}" for line in before[start:end])


def _range(start: int, end: int) -> str:
    count = end - start
    first = start + 1 if count else start
    return str(first) if count == 1 else f"{first},{count}"


def _equal(before: Sequence[str], after: Sequence[str]) -> list[Block]:
    """Returns the parts that are equal in both versions, in order."""
    cuts = [(0, 0, 0)]
    head, tail = _ends(before, after)
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    if len(old) * len(new) <= SMALL:
        cuts += _by_difflib(old, new, head, head)
    else:
        place = (0, 0)
        for anchor in [*_anchors(old, new), (len(old), len(new))]:
            cuts += _between(
                old[place[0] : anchor[0]], new[place[1] : anchor[1]], head + place[0], head + place[1]
            )
            cuts.append((head + anchor[0], head + anchor[1], int(anchor[0] < len(old))))
            place = (anchor[0] + 1, anchor[1] + 1)
    blocks = [(0, 0, head), *cuts, (len(before) - tail, len(after) - tail, tail)]
    return [block for block in blocks if block[2]]


def _ends(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """Returns how many lines are equal at the beginning, and how many of the others at the end."""
    most = min(len(before), len(after))
    head = next((n for n in range(most) if before[n] != after[n]), most)
    most -= head
    tail = next((n for n in range(most) if before[-1 - n] != after[-1 - n]), most)
    return head, tail


def _by_difflib(old: Sequence[str], new: Sequence[str], start: int, new_start: int) -> list[Block]:
    blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    return [(start + block.a, new_start + block.b, block.size) for block in blocks if block.size]


def _between(old: Sequence[str], new: Sequence[str], start: int, new_start: int) -> list[Block]:
    """Returns the equal parts between two anchors. A large part counts as replaced, except for its ends."""
    head, tail = _ends(old, new)
    inner, other = old[head : len(old) - tail], new[head : len(new) - tail]
    small = len(inner) * len(other) <= min(SMALL, 8 * (len(inner) + len(other)))
    middle = _by_difflib(inner, other, start + head, new_start + head) if small else []
    last = (start + len(old) - tail, new_start + len(new) - tail, tail)
    return [(start, new_start, head), *middle, last]


def _anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Returns the longest series of lines that occur once in each version and have the same order in both."""
    counts, others = Counter(old), Counter(new)
    places = {line: number for number, line in enumerate(new) if others[line] == 1}
    pairs = [(n, places[line]) for n, line in enumerate(old) if counts[line] == 1 and line in places]
    ends, last, before = list[int](), list[int](), list[int]()
    for number, (_, place) in enumerate(pairs):
        at = bisect_left(ends, place)
        before.append(last[at - 1] if at else -1)
        ends[at : at + 1], last[at : at + 1] = [place], [number]
    series, number = list[tuple[int, int]](), last[-1] if last else -1
    while number >= 0:
        series.append(pairs[number])
        number = before[number]
    return series[::-1]
