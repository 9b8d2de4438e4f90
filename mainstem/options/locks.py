"""Options of the table lock (HoodieLockConfig), with Hudi 1.2's defaults.

The provider is the exception: Hudi has no default since 1.1. mainstem uses the file-system lock, because a
lock inside one process (Hudi's silent fallback) does not order several writers.
"""

from __future__ import annotations

from mainstem.options.declaration import Choice, Text, Whole

_JAVA_INT_MAX = 2**31 - 1
_READ_BY, _ZOOKEEPER = "truetime.locks", "truetime.locks.zookeeper"
_STORAGE, _DYNAMODB = "truetime.locks.storage_lock", "truetime.locks.dynamodb_lock"

FILE_SYSTEM = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
IN_PROCESS = "org.apache.hudi.client.transaction.lock.InProcessLockProvider"
EXPLICIT = "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider"
IMPLICIT = "org.apache.hudi.client.transaction.lock.ZookeeperBasedImplicitBasePathLockProvider"
STORAGE = "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"
DYNAMODB = "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider"
DYNAMODB_IMPLICIT = "org.apache.hudi.aws.transaction.lock.DynamoDBBasedImplicitPartitionKeyLockProvider"

PROVIDER = Choice(
    "hoodie.write.lock.provider", FILE_SYSTEM,
    (FILE_SYSTEM, EXPLICIT, IMPLICIT, STORAGE, DYNAMODB, DYNAMODB_IMPLICIT, IN_PROCESS), read_by=_READ_BY,
    says="Hudi's class of the table lock; all writers of a table must use the same.",
)  # fmt: skip
WAIT_MS = Whole(
    "hoodie.write.lock.wait_time_ms", 60_000, 0, _JAVA_INT_MAX, "milliseconds", read_by=_READ_BY,
    says="How long one attempt waits for the lock.",
)  # fmt: skip
RETRIES = Whole(
    "hoodie.write.lock.client.num_retries", 50, 0, _JAVA_INT_MAX, "retries", read_by=_READ_BY,
    says="How many attempts follow the first.",
)  # fmt: skip
PAUSE_MS = Whole(
    "hoodie.write.lock.client.wait_time_ms_between_retry", 5_000, 0, _JAVA_INT_MAX, "milliseconds",
    read_by=_READ_BY, says="The pause between two attempts; Java checks for a free lock file this often.",
)  # fmt: skip
#: Hudi's default under a bucket index reads a number out of file ids, and fails on those of rings.
CONFLICTS_BY_FILE = "org.apache.hudi.client.transaction.SimpleConcurrentFileWritesConflictResolutionStrategy"
CONFLICTS = Text(
    "hoodie.write.lock.conflict.resolution.strategy", like="class of Hudi's", read_by="api.create",
    says="How Java's writers find conflicts; mainstem has none.",
)  # fmt: skip
FOLDER = Text(
    "hoodie.write.lock.filesystem.path", like="absolute local path", read_by=_READ_BY,
    says="Folder of the lock file; by default the table's `.hoodie`.",
)  # fmt: skip
FOREIGN_EXPIRE_MIN = Whole(
    "hoodie.write.lock.filesystem.expire", 0, 0, _JAVA_INT_MAX, "minutes (0 = never)", read_by=_READ_BY,
    says="After how long another engine's lock file counts as abandoned.",
)  # fmt: skip
EXPIRE_MS = Whole(
    # Below 200 ms a busy machine misses refreshes; above 10 minutes a dead holder blocks for too long.
    "hoodie.mainstem.lock.expire_ms", 60_000, 200, 600_000, "milliseconds", read_by=_READ_BY,
    says="After how long without a refresh other mainstem writers may take a lock over.",
)  # fmt: skip

URL = Text(
    "hoodie.write.lock.zookeeper.url", like="host:port,.../chroot", read_by=_ZOOKEEPER, says="The servers."
)
PORT = Whole(
    "hoodie.write.lock.zookeeper.port", 2181, 1, 65_535, "port", read_by=_ZOOKEEPER,
    says="Accepted and, as in Hudi, not used: ports are in the URL.",
)  # fmt: skip
BASE_PATH = Text(
    "hoodie.write.lock.zookeeper.base_path", like="node path", read_by=_ZOOKEEPER,
    says="The node under which the lock lies.",
)  # fmt: skip
LOCK_KEY = Text(
    "hoodie.write.lock.zookeeper.lock_key", like="node name", read_by=_ZOOKEEPER,
    says="The lock's node; by default the table's name.",
)  # fmt: skip
SESSION_MS = Whole(
    "hoodie.write.lock.zookeeper.session_timeout_ms", 60_000, 100, 3_600_000, "milliseconds",
    read_by=_ZOOKEEPER, says="After how long the servers release a silent holder's lock.",
)  # fmt: skip
CONNECTION_MS = Whole(
    "hoodie.write.lock.zookeeper.connection_timeout_ms", 15_000, 1, 3_600_000, "milliseconds",
    read_by=_ZOOKEEPER, says="How long to wait for a connection.",
)  # fmt: skip
AUTH = Text(
    "hoodie.mainstem.lock.zookeeper.auth", like="digest:user:password", read_by=_ZOOKEEPER,
    says="Credentials; better given by the environment variable MAINSTEM_ZOOKEEPER_AUTH.",
)  # fmt: skip
TABLE_BASE = Text(
    "hoodie.base.path", like="the table's path", read_by=_ZOOKEEPER,
    says="The table's path as Java jobs spell it, in plans that Java may carry out; the implicit lock node is"
    " its hash.",
)  # fmt: skip

VALIDITY_S = Whole(
    "hoodie.write.lock.storage.validity.timeout.secs", 300, 10, 86_400, "seconds", read_by=_STORAGE,
    says="How long the lock of a holder that died stays taken; at least ten renewals.",
)  # fmt: skip
RENEW_S = Whole(
    "hoodie.write.lock.storage.renew.interval.secs", 30, 1, 8_640, "seconds", read_by=_STORAGE,
    aliases=("hoodie.write.lock.storage.heartbeat.poll.secs",), says="How often a holder renews it.",
)  # fmt: skip

ITEM_TABLE = Text(
    "hoodie.write.lock.dynamodb.table", like="table name", read_by=_DYNAMODB,
    says="The DynamoDB table that holds locks; made if it is missing.",
)  # fmt: skip
ITEM_KEY = Text(
    "hoodie.write.lock.dynamodb.partition_key", like="text", read_by=_DYNAMODB,
    says="The lock's item; by default the table's name.",
)  # fmt: skip
REGION = Text(
    "hoodie.write.lock.dynamodb.region", "us-east-1", like="region", read_by=_DYNAMODB,
    says="Its region; the variable AWS_REGION comes before the default.",
)  # fmt: skip
ENDPOINT = Text(
    "hoodie.write.lock.dynamodb.endpoint_url", like="URL", read_by=_DYNAMODB,
    says="Its address, where it is not the region's.",
)  # fmt: skip
BILLING_MODE = Choice(
    "hoodie.write.lock.dynamodb.billing_mode", "PAY_PER_REQUEST", ("PAY_PER_REQUEST", "PROVISIONED"),
    read_by=_DYNAMODB, says="How a table that is made is paid for.",
)  # fmt: skip
READ_CAPACITY = Whole(
    "hoodie.write.lock.dynamodb.read_capacity", 20, 1, 40_000, "units", read_by=_DYNAMODB,
    says="Its read capacity, if PROVISIONED.",
)  # fmt: skip
WRITE_CAPACITY = Whole(
    "hoodie.write.lock.dynamodb.write_capacity", 10, 1, 40_000, "units", read_by=_DYNAMODB,
    says="Its write capacity, if PROVISIONED.",
)  # fmt: skip
CREATION_MS = Whole(
    "hoodie.write.lock.dynamodb.table_creation_timeout", 120_000, 0, 3_600_000, "milliseconds",
    read_by=_DYNAMODB, says="How long a table that is made may take until it is active.",
)  # fmt: skip

#: what all writers must agree on besides the provider; a table's properties may hold it
PLACE_KEYS = (URL, PORT, BASE_PATH, LOCK_KEY, ITEM_TABLE, ITEM_KEY, REGION, ENDPOINT)
#: what a table says about its lock and no writer may contradict
LOCK_KEYS = (PROVIDER, FOLDER, FOREIGN_EXPIRE_MIN, *PLACE_KEYS)
