"""Chaos: writers and services of many kinds on one table, under a ZooKeeper ensemble that fails with them, or
in an object store that does.

``python -m tests.chaos.run`` (``make chaos``, ``make chaos-store``) starts it:

    rows            what each source sends, as SQL and as numpy: everybody can compute what must be there
    python_writer   a plain writer; it journals what ``commit`` told it, and can be sabotaged
    spark_writer    a driver with a streaming query, which journals the same
    flink_writer    a Flink SQL job with its own small cluster, which goes on from its newest checkpoint
    indexer         a process that builds indexes, or drops them
    reader          a process that reads all the while, and must see whole commits
    bucket          a table in MinIO behind a proxy that makes trouble, and how its files are looked at
    actors          one process each, with all its children: started, killed, stopped, woken
    faults          what can go wrong, dealt from a shuffled pack that holds every fault once
    harness         the time of the run: deals faults, starts the dead again, watches the timeline
    checks          what must hold at the end, from journals and files
    run             the command, and the score that it prints
"""

from tests import quiet_writers  # noqa: F401
