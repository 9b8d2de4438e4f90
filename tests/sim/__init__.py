"""A deterministic world that runs the production code of writers and readers: one seed, virtual time.

Every storage, clock and lock call is a scheduling point at which the actor may be delayed, stopped,
killed or handed an error; the same seed gives the same run, call by call, in every process.

- ``world``        scheduler, processes, faults (each run draws its own mixture), the trace
- ``sim_storage``  a POSIX file system in memory: what a crash of the machine keeps, torn bytes, torn
                   listings, errors before and after the effect; ``sim_clock``, ``sim_lock`` likewise
- ``sim_store``    an object store in memory, under ``storage.object_store`` as it is: requests that come
                   late, twice or not at all, lost replies, throttling; ``gate_rules`` watch the gate
- ``simulation``   one run: build, faults, calm, settle, audit; scenarios in ``publishers`` (the fence
                   alone), ``tables`` (writers, streams, readers, rollback), ``mixed`` (beside a Java-like
                   writer); ``compactor`` stands for Java's compactions
- ``checkers``     the rules, over ``plain_format`` (a second decoder) and ``oracle`` (dictionaries);
                   ``service_rules`` those of table services, over ``ledger`` (all that ever completed)
- ``mutants``      seeded bugs that a run must find, from the modules ``mutants_<topic>``

``python -m tests.sim.run --seconds 60 --seed 0`` searches, with ``--body store`` on an object store; a
failing seed is printed with the line that replays it.
"""

from tests import quiet_writers  # noqa: F401
