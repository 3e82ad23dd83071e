"""What counts as a failure in the soak run."""

import pytest
from conftest import load

soak = load("soak")


def tally(**seen):
    tally = soak.Tally()
    tally.requests, tally.ids = 2, {1, 2}
    for name, value in seen.items():
        setattr(tally, name, value)
    return tally


def test_a_run_in_which_nothing_went_wrong_is_well():
    assert soak.report(tally(), ([2, 1], 2), [100, 100], [109, 90]) == 0


def test_a_row_of_a_request_that_was_cut_off_may_be_there():
    assert soak.report(tally(cut_off=1), ([3, 2, 1], 3), [100], [100]) == 0


@pytest.mark.parametrize(
    ("seen", "found", "end", "why"),
    [
        ({"failures": ["500"]}, ([1, 2], 2), [100], "REQUESTS FAILED"),
        ({}, ([1], 1), [100], "ROWS ARE MISSING"),
        ({}, ([1, 2, 3], 3), [100], "THERE ARE ROWS THAT NOBODY ASKED FOR"),
        ({}, ([1, 2, 2], 3), [100], "ROWS ARE LISTED TWICE"),
        ({}, ([1, 2], 3), [100], "USAGE DOES NOT COUNT EACH ROW ONCE"),
        ({}, ([1, 2], 2), [120], "MEMORY GROWS"),
        ({"requests": 0, "ids": set()}, ([], 0), [100], "NOTHING WAS DONE"),
    ],
)
def test_whatever_is_wrong_is_named_and_fails(capsys, seen, found, end, why):
    assert soak.report(tally(**seen), found, [100], end) == 1
    assert why in capsys.readouterr().out
