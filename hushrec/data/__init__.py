"""Ratings and their public domain: readers, splits, keyed samples, generated data sets."""

from hushrec.data.domain import Domain
from hushrec.data.generators import dpals_matrix, jtt18_matrix, one_bit_matrix, realistic
from hushrec.data.ratings import Ratings
from hushrec.data.sampling import sample_per_user
from hushrec.data.splits import leave_k_out, split_ratings, strong_generalization

__all__ = [
    "Domain",
    "Ratings",
    "dpals_matrix",
    "jtt18_matrix",
    "leave_k_out",
    "one_bit_matrix",
    "realistic",
    "sample_per_user",
    "split_ratings",
    "strong_generalization",
]
