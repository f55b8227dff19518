"""Trainings in other places than one process: a Dask cluster, nodes under secure aggregation."""
