"""Charts of any numbers are finite and complete."""

import pytest

from swelab.files import svg_charts


@pytest.mark.parametrize("values", [{4: 1}, {0: 3, 1: 2}, {3: 1, 100_000: 1}, dict.fromkeys(range(900), 1)])
def test_bins_hold_every_value_once(values):
    edges, heights = svg_charts.bin_counts(values, 24)
    assert sum(heights) == sum(values.values()) and len(heights) <= 26
    assert edges[0] <= min(values) and max(values) < edges[-1]
    assert len({high - low for low, high in zip(edges, edges[1:])}) == 1
    assert "NaN" not in svg_charts.histogram(values, "t", ("turns", "attempts"), mark=7)


def test_ticks_are_round_and_inside():
    assert svg_charts.nice_ticks(0, 8.1) == [0, 2, 4, 6, 8]
    assert svg_charts.nice_ticks(0, 0.03) == [0, 0.01, 0.02, 0.03]
    assert svg_charts.nice_ticks(5, 5) == [5]
    assert [svg_charts.short(value) for value in (0.05, 0, 800, 9000, 12_000, 3e6)] == (
        "0.05 0 800 9,000 12k 3M".split()
    )
