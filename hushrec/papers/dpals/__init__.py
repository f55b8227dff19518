"""Chien et al. 2021 as published, with its printed constants corrected."""

from hushrec.papers.dpals.dpals import DPALS

__all__ = ["DPALS"]
