"""What all engines of tasks share (Ray, Daft, Dask): a query of one moment cut into tasks, and rows that
tasks write for one commit. And what tools share that name their tables (dbt, Dagster). Nothing
here knows an engine."""
