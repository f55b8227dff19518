"""Trainings outside one process: a Dask cluster, or two servers."""
