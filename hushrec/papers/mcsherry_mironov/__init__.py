"""McSherry and Mironov 2009, recalibrated from one rating to one user."""

from hushrec.papers.mcsherry_mironov.cleansed_svd import CleansedSVD

__all__ = ["CleansedSVD"]
