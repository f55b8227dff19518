"""Chien et al. 2021 as published, with its printed constants mended."""

from hushrec.papers.dpals.dpals import DPALS

__all__ = ["DPALS"]
