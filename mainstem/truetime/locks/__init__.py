"""Table locks: the protocol, and its kinds (file system, ZooKeeper, in-process), in Hudi's own option names.

Options are plain values below the locks (``options``); ``providers`` chooses among them, above.

A lock gives a lease; a lease can be lost, so holding one is never proof. What must hold although a lease was
lost is the fence's business (``publish``).
"""
