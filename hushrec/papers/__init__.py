"""Algorithms as papers have them, one folder a paper: not where a private recommender begins.

They are found by name like any other (:mod:`hushrec.registry`), and the core never imports them.
"""
