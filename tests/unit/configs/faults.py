"""The one line that refuses bad input."""

import pytest

from swelab.records import InputError


def fault(function, *arguments):
    """Returns the message of a call with bad input."""
    with pytest.raises(InputError) as caught:
        function(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)
