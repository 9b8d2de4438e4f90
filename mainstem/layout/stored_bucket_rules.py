"""The file that says how many buckets each partition has (PartitionBucketIndexHashingConfig).

Hudi's Flink makes it with a table, Spark's procedure that changes the counts makes another one, and Spark's
queries leave files out by the newest. Spark's writers neither read nor make it: they are given the rules.
"""

from __future__ import annotations

import json

from mainstem.errors import CorruptTable, Invalid, Unsupported
from mainstem.layout.bucket_rules import BucketRules
from mainstem.layout.properties import TableConfig
from mainstem.limits import LOCK_FILE_BYTES_MAX
from mainstem.options.placing import BUCKET_EXPRESSIONS, BUCKET_RULE, BUCKETS
from mainstem.publish.staging import create_once
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import load_timeline

_FOLDERS = [paths.BUCKET_RULES.rsplit("/", deep)[0] for deep in range(3)]
_FIRST = paths.FIRST_BUCKET_RULES.rpartition("/")[2]


def stored_rules(storage: Storage, config: TableConfig) -> dict[str, str]:
    """What the file says, as options; {} without one.

    Raises ``Unsupported`` while another engine changes the counts, ``Invalid`` if ``config`` says otherwise
    than the file, ``CorruptTable`` for a file that does not parse.
    """
    name = _newest(storage)
    if name is None:
        return {}
    time = paths.bucket_rules_time(name)
    if any(i.requested == time and not i.is_completed for i in load_timeline(storage).instants):
        raise Unsupported(
            f"the instant {time} changes the bucket counts of partitions, and it is not completed: end it or"
            " roll it back with Hudi first",
            table=storage.base,
        )
    path = f"{paths.BUCKET_RULES}/{name}"
    try:
        found = json.loads(storage.read(path, max_bytes=LOCK_FILE_BYTES_MAX))
        told = {
            BUCKET_EXPRESSIONS: str(found["expressions"]),
            BUCKET_RULE: str(found["rule"]),
            BUCKETS: str(int(found["defaultBucketNumber"])),
        }
    except (ValueError, TypeError, KeyError, FileNotFoundError) as error:
        raise CorruptTable(
            f"{path} says nothing of bucket counts: {error}", path=path, table=storage.base
        ) from error
    for key in (BUCKET_EXPRESSIONS, BUCKETS):
        said = config.raw.get(key, "").strip()
        if said and said != told[key].strip():
            raise Invalid(
                f"{key} is {said!r}, but {path} says {told[key]!r}: rows would be doubled. Drop the option"
                " (if another engine changed the counts of this table, copy its rows into a new one)",
                table=storage.base,
            )
    return {str(key): text for key, text in told.items()}


def put_first_rules(storage: Storage, rules: BucketRules) -> None:
    """Make the file of a new table, durably; another creator may have made it."""
    content = {
        "expressions": rules.expressions,
        "defaultBucketNumber": rules.default,
        "rule": BUCKET_RULE.default,
        "version": 1,
        "instant": paths.bucket_rules_time(_FIRST),
        "filename": _FIRST,
    }
    data = json.dumps(content, indent=2, separators=(",", " : "), ensure_ascii=False).encode()
    create_once(storage, paths.FIRST_BUCKET_RULES, data, durable=True)
    storage.settle([], [paths.HOODIE, *_FOLDERS], durable=True)


def counts_as_made(storage: Storage, rules: BucketRules | None) -> bool:
    """Whether no other engine has changed the counts since the table was made, with ``rules`` or without."""
    return _newest(storage) in ((None,) if rules is None else (None, _FIRST))


def check_without_rules(storage: Storage) -> None:
    """Check that nobody has given the partitions of a table bucket counts of their own. Raises ``Invalid``.

    Hudi's procedure ``partition_bucket_index_manager`` does that with a table that has one count, too: it
    writes partitions anew, and leaves the properties as they are.
    """
    name = _newest(storage)
    if name is not None:
        raise Invalid(
            f"{paths.BUCKET_RULES}/{name} gives partitions bucket counts of their own, and the table was made"
            " with one: another engine changes them, or has. By the old count rows would be lost or doubled,"
            " so nothing is written: copy the table's rows into a new one (if that change was taken back and"
            " only its file is left, delete the file)",
            table=storage.base,
            instant=paths.bucket_rules_time(name) or "",
        )


def _newest(storage: Storage) -> str | None:
    names = [name for name in storage.names(paths.BUCKET_RULES) if paths.bucket_rules_time(name)]
    return max(names, key=lambda name: paths.bucket_rules_time(name) or "", default=None)
