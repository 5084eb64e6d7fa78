"""Numbers and durations as people read them."""

import math

import pytest

from trncheck.reports.text import duration, moment, number, numbers, one_line, plural, share


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (12.43, "12.43"),
        (12.4412, "12.44"),
        (1.2e-7, "1.2e-07"),
        (0.000123456, "0.0001235"),
        (151936.0, "151,936"),
        (123456.7, "123,457"),
        (99999.9, "100,000"),
        (999.96, "1,000"),
        (-3.0, "-3"),
        (1e300, "1e+300"),
        (math.nan, "NaN"),
        (math.inf, "∞"),
        (-math.inf, "-∞"),
    ],
)
def test_number(value, shown):
    assert number(value) == shown


def test_numbers_that_differ_look_different():
    assert numbers(1.0004e-6, 1e-6) == ("1.0004e-06", "1e-06")
    assert numbers(12.43, 12.43) == ("12.43", "12.43")
    value, bar = numbers(1.0, math.nextafter(1.0, 2.0))
    assert value != bar


@pytest.mark.parametrize(
    ("fraction", "shown"),
    [
        (0.0, "0 %"),
        (1e-9, "< 0.01 %"),
        (0.0031, "0.31 %"),
        (0.42, "42 %"),
        (1.0, "100 %"),
        (1.0004, "100.04 %"),
        (0.9996, "99.96 %"),
        (1.00000004, "100.000004 %"),
        (3.4, "340 %"),
        (9.99, "999 %"),
        (123.4, "× 120"),
        (math.inf, "× ∞"),
    ],
)
def test_share(fraction, shown):
    assert share(fraction) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "–"),
        (math.nan, "–"),
        (0.0, "< 0.01 s"),
        (0.041, "0.041 s"),
        (1.27, "1.3 s"),
        (59.7, "1 min 00 s"),
        (222.4, "3 min 42 s"),
        (3900.0, "1 h 05 min"),
    ],
)
def test_duration(seconds, shown):
    assert duration(seconds) == shown


def test_moment_in_utc():
    assert moment("2026-03-01T11:15:00+01:00") == "2026-03-01 10:15 UTC"
    assert moment("yesterday") == "yesterday"


def test_one_line_and_plural():
    assert one_line(" a\n\tb ") == "a b"
    assert one_line("abcdef", 4) == "abc…"
    assert (plural(1, "check"), plural(1234, "check")) == ("1 check", "1,234 checks")
