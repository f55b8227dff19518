"""D4: settings that are no numbers in range, no words of the list or no booleans: refused in one sentence."""

import math
from dataclasses import MISSING, fields

import numpy as np
import pytest

from hushrec.algorithms import ESTIMATORS
from hushrec.errors import InputError

NOT_NUMBERS = [math.nan, math.inf, -math.inf, -1e308, "1", True, 1j, [1.0], {}, 10**400, np.array([1.0, 2.0])]
NOT_WORDS = ["nonsense", "", None, 1, True, math.nan, ["random"]]
NOT_TRUTHS = ["yes", 1, 0.0, None, math.nan, [True]]


def bad_values(field) -> list:
    if field.name == "threshold":  # any number will do
        return [value for value in NOT_NUMBERS if value is not NOT_NUMBERS[3]]
    if "bool" in field.type:
        return NOT_TRUTHS
    if "str" in field.type:
        return NOT_WORDS
    return NOT_NUMBERS if "None" in field.type else [*NOT_NUMBERS, None]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_no_estimator_takes_them(name: str, record_property) -> None:
    estimator_class, accepted = ESTIMATORS[name], []
    needed = {field.name: 30.0 for field in fields(estimator_class) if field.default is MISSING}
    for field in fields(estimator_class):
        for value in bad_values(field):
            try:
                estimator_class(**needed | {field.name: value})
            except InputError as error:
                assert "\n" not in str(error) and len(str(error)) < 600
            except Exception as error:
                accepted.append((field.name, repr(value)[:30], repr(error)[:80]))
            else:
                accepted.append((field.name, repr(value)[:30]))
            record_property("refused", 1)
    assert not accepted, "\n".join(map(str, accepted))
