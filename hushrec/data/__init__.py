"""Ratings and their public domain: readers, splits, keyed samples, generated ratings."""

from hushrec.data.domain import Domain
from hushrec.data.generators import paired_likes, realistic
from hushrec.data.ratings import Ratings
from hushrec.data.sampling import sample_per_user
from hushrec.data.splits import k_folds, leave_k_out, split_by_time, split_ratings, strong_generalization
from hushrec.data.store import Store

__all__ = [
    "Domain",
    "Ratings",
    "Store",
    "k_folds",
    "leave_k_out",
    "paired_likes",
    "realistic",
    "sample_per_user",
    "split_by_time",
    "split_ratings",
    "strong_generalization",
]
