"""The one line in which bad input is refused."""

import pytest

from swelab.records import InputError


def fault(function, *arguments):
    """What a call says of its bad input."""
    with pytest.raises(InputError) as caught:
        function(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)
