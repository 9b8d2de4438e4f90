"""Table locks: the protocol and its implementations (file system, ZooKeeper, in-process).

``options`` reads Hudi's settings and knows no lock; ``providers`` knows all locks and picks one by its
settings.

Acquiring a lock returns a lease. A lease can be lost, so holding one is never proof; the fence (``publish``)
guarantees what must hold even after a lost lease.
"""
