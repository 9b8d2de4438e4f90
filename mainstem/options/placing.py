"""Where a row lands: record keys, partitions and their folders, key generators, buckets.

All writers of a table must agree on this, so options that contradict the table are refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from mainstem.options.declaration import Choice, Flag, Text, Whole
from mainstem.options.families import TIME_PARTITIONS, TIME_PARTITIONS_OLD

_TABLE = "layout.properties"
_KEYS = "layout.key_generator"
_RULES = "layout.bucket_rules"

#: what jobs call them
RECORD_KEY_OPTION = "hoodie.datasource.write.recordkey.field"
PARTITION_OPTION = "hoodie.datasource.write.partitionpath.field"
RECORD_KEY_FIELDS = Text(
    "hoodie.table.recordkey.fields", like="column,...", table=True, aliases=(RECORD_KEY_OPTION,),
    read_by=_TABLE, says="The columns that identify a row.",
)  # fmt: skip
PARTITION_FIELDS = Text(
    "hoodie.table.partition.fields", like="column[:kind],...", table=True, aliases=(PARTITION_OPTION,),
    read_by=_TABLE, says="The columns that make a row's folder; for CUSTOM key generators `field:KIND`.",
)  # fmt: skip
HIVE_STYLE = Flag(
    "hoodie.datasource.write.hive_style_partitioning", False, table=True, read_by=_TABLE,
    says="Folders are named `city=Rome` instead of `Rome`.",
)  # fmt: skip
URL_ENCODE = Flag(
    "hoodie.datasource.write.partitionpath.urlencode", False, table=True, read_by=_TABLE,
    says="Escapes special characters in folders.",
)  # fmt: skip
SLASH_DATES = Flag(
    "hoodie.datasource.write.slash.separated.date.partitioning", False, table=True, read_by=_TABLE,
    says="Dates make folders such as `2026/01/10`.",
)  # fmt: skip
KEY_GENERATOR_OPTION = "hoodie.datasource.write.keygenerator.type"
KEY_GENERATOR = Choice(
    "hoodie.table.keygenerator.type", "", ("SIMPLE", "COMPLEX", "NON_PARTITION", "TIMESTAMP", "CUSTOM"),
    table=True, aliases=(KEY_GENERATOR_OPTION,), read_by=_KEYS,
    says="How keys and folders are made from columns; by default, as key and partition fields imply.",
)  # fmt: skip
#: what jobs call it
KEY_GENERATOR_CLASS_OPTION = "hoodie.datasource.write.keygenerator.class"
KEY_GENERATOR_CLASS = Text(
    "hoodie.table.keygenerator.class", like="class of Hudi's", aliases=(KEY_GENERATOR_CLASS_OPTION,),
    read_by=_KEYS, says="The key generator by Hudi's class name.",
)  # fmt: skip
PARTITION_EXTRACTOR = Text(
    "hoodie.table.partition_extractor_class", like="class of Hudi's", read_by=_KEYS,
    says="Shows that a table may have slash-separated dates as folders.",
)  # fmt: skip
CONSISTENT_TIMESTAMP = Flag(
    "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled", False, read_by=_KEYS,
    says="Timestamps in keys are local texts, not numbers.",
)  # fmt: skip
# What record keys of one field look like under a COMPLEX key generator (HUDI-7001). The first is what newer
# Hudi stores in a table; without it the second decides in tables of version 8, where Hudi 1.1 and later write
# only if the third is false.
KEY_ENCODING = Choice(
    "hoodie.table.complex.keygen.encoding", "FIELD_PREFIXED", ("FIELD_PREFIXED", "VALUE_ONLY"), read_by=_KEYS,
    says="How a COMPLEX key generator writes record keys of one field: `field:value` or `value`.",
)  # fmt: skip
NEW_ENCODING = Flag(
    "hoodie.write.complex.keygen.new.encoding", False, read_by=_KEYS,
    says="The same for tables of version 8 that do not record it: true for `value`.",
)  # fmt: skip
ENCODING_VALIDATION = Flag(
    "hoodie.write.complex.keygen.validation.enable", True, read_by=_KEYS,
    says="Such tables of version 8 are refused until this is false.",
)  # fmt: skip

# -- folders of times (TimestampBasedKeyGenerator) -------------------------------------------------------


def _time(name: str, default: str, like: str, says: str) -> Text:
    return Text(
        TIME_PARTITIONS + name, default, like=like, table=True, aliases=(TIME_PARTITIONS_OLD + name,),
        read_by="layout.time_partitions", says=says,
    )  # fmt: skip


TIME_TYPE = _time("timestamp.type", "", "Hudi's types", "What the partition column holds: numbers or texts.")
TIME_UNIT = _time("timestamp.scalar.time.unit", "SECONDS", "unit of time", "Unit of SCALAR numbers.")
TIME_INPUT_FORMAT = _time("input.dateformat", "", "Java pattern,...", "Pattern by which texts are read.")
TIME_INPUT_DELIMITER = _time(
    "input.dateformat.list.delimiter.regex", ",", "regular expression", "Separates several input patterns."
)
TIME_OUTPUT_FORMAT = _time("output.dateformat", "", "Java pattern", "Pattern of the folders.")
TIME_ZONE = _time("timezone", "", "IANA name", "Zone of input and output.")
TIME_INPUT_ZONE = _time("input.timezone", "", "IANA name", "Zone of input texts that name none.")
TIME_OUTPUT_ZONE = _time("output.timezone", "", "IANA name", "Zone of the folders.")
TIME_OPTIONS = (
    TIME_TYPE, TIME_UNIT, TIME_INPUT_FORMAT, TIME_INPUT_DELIMITER, TIME_OUTPUT_FORMAT, TIME_ZONE,
    TIME_INPUT_ZONE, TIME_OUTPUT_ZONE,
)  # fmt: skip
TIME_PARSER = Text(
    "hoodie.keygen.datetime.parser.class", "org.apache.hudi.keygen.parser.HoodieDateTimeParser",
    like="class of Hudi's", read_by="layout.time_partitions", says="Parsers other than Hudi's are refused.",
)  # fmt: skip

# -- buckets --------------------------------------------------------------------------------------------

BUCKETS = Whole(
    "hoodie.bucket.index.num.buckets", 256, 1, 100_000, "buckets", table=True, read_by=_TABLE,
    says="File groups per partition; another number by mainstem resize.",
)  # fmt: skip
RESIZES = Text(
    "hoodie.mainstem.bucket.resizes", like="before>after@instant,...", table=True, read_by=_TABLE,
    says="Written by mainstem resize: the bucket counts that the table had.",
)  # fmt: skip
HASH_FIELD = Text(
    "hoodie.bucket.index.hash.field", like="column,...", table=True, read_by=_TABLE,
    says="The columns of the record key whose hash chooses the bucket; by default all.",
)  # fmt: skip
INDEX_TYPE = Choice(
    "hoodie.index.type", "BUCKET",
    ("BUCKET", "SIMPLE", "GLOBAL_SIMPLE", "BLOOM", "GLOBAL_BLOOM", "RECORD_INDEX", "RECORD_LEVEL_INDEX",
     "GLOBAL_RECORD_LEVEL_INDEX"),
    flink="index.type", table=True, read_by=_TABLE,
    says="How the file group of a key is found: by its bucket, or by looking where it lives.",
)  # fmt: skip
SIMPLE_MOVES = Flag(
    "hoodie.simple.index.update.partition.path", True, read_by="layout.key_index",
    says="Whether a GLOBAL_SIMPLE key that comes with another partition moves there, or the row stays.",
)  # fmt: skip
BLOOM_MOVES = Flag(
    "hoodie.bloom.index.update.partition.path", True, read_by="layout.key_index",
    says="Whether a GLOBAL_BLOOM key that comes with another partition moves there, or the row stays.",
)  # fmt: skip
RECORD_MOVES = Flag(
    "hoodie.record.index.update.partition.path", False, read_by="layout.key_index",
    says="Whether a key of a global record index that comes with another partition moves there, or the row"
    " stays.",
)  # fmt: skip
KEY_MOVES = (SIMPLE_MOVES, BLOOM_MOVES, RECORD_MOVES)
BUCKET_ENGINE = Choice(
    "hoodie.index.bucket.engine", "SIMPLE", ("SIMPLE", "CONSISTENT_HASHING"), table=True, read_by=_TABLE,
    says="Whether buckets are fixed or, under consistent hashing, ranges of hashes that Hudi's clustering"
    " splits and merges.",
)  # fmt: skip
BUCKET_EXPRESSIONS = Text(
    "hoodie.bucket.index.partition.expressions", like="expression,count;...", table=True, read_by=_RULES,
    says="Bucket counts of partitions: of the first expression that is found in the path.",
)  # fmt: skip
BUCKET_RULE = Text(
    "hoodie.bucket.index.partition.rule.type", "regex", like="regex", table=True,
    aliases=("hoodie.bucket.index.partition.rule",), read_by=_RULES,
    says="What these expressions are; Hudi has one kind.",
)  # fmt: skip


def uses_rings(properties: Mapping[str, str]) -> bool:
    """Whether buckets are ranges of hashes (consistent hashing)."""
    text = str(properties.get(BUCKET_ENGINE, "")).strip().upper()
    return INDEX_TYPE.read(properties) == INDEX_TYPE.default and text == "CONSISTENT_HASHING"


VECTOR_COLUMNS = Text(
    "hoodie.vector.columns", like="column:dimension,...", read_by="flink",
    says="For a new table: which arrays are vectors. In a base file's footer: which columns are vectors.",
)  # fmt: skip
