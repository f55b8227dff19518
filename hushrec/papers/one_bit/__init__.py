"""Li et al. 2021, with its guarantees corrected: completion of likes and dislikes, each one protected."""

from hushrec.papers.one_bit.flips import randomize_labels
from hushrec.papers.one_bit.one_bit import Completion, OneBitCompletion, completion_scores

__all__ = ["Completion", "OneBitCompletion", "completion_scores", "randomize_labels"]
