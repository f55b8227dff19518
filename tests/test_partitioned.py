"""Users in partitions that are asked one question at a time give the model of the whole, byte for byte."""

import numpy as np
import pytest

from hushrec.gate import LocalGate
from hushrec.kernels import threads
from hushrec.kernels.threads import one_blas_thread
from hushrec.partitioned import PartitionedUsers, Question, answer_all
from hushrec.privacy import Accountant
from hushrec.privacy.testing import SeededNoise
from tests.algorithms.cases import CASES, Case, hostile_data, ratings_of

STREAMED = [case for case in CASES if case.estimator.streams]


def trained(case: Case, relation: str, partitions: int | None) -> dict:
    ratings = ratings_of(hostile_data(np.random.default_rng(5), 23)).rated()
    accountant = Accountant(case.budget(relation), noise=SeededNoise(3))
    plan = case.estimator.check(ratings, accountant)
    make = case.estimator.users
    users = make(ratings)
    if partitions is not None:
        ends = np.linspace(0, ratings.n_users, partitions + 1).astype(int)
        parts = [ratings.rows(np.arange(low, high), keyed=True) for low, high in zip(ends, ends[1:])]

        def ask(question: Question):
            return answer_all(make, [lambda part=part: part for part in parts], question) or []

        users = PartitionedUsers(make, ratings.domain, ask)
    with one_blas_thread():
        return case.estimator.train(users, LocalGate(accountant, plan), 1)


@pytest.mark.parametrize("case", STREAMED, ids=lambda case: case.name)
def test_the_same_bytes_for_any_number_of_partitions(case: Case) -> None:
    for relation in ("add-remove", "replace"):
        whole = trained(case, relation, None)
        for partitions, count in ((1, 1), (7, 3), (40, 2)):
            with threads.limit(count):
                parts = trained(case, relation, partitions)
            assert {name: array.tobytes() for name, array in parts.items()} == {
                name: array.tobytes() for name, array in whole.items()
            }
