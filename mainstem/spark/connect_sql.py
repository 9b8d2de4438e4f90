"""What ``sql`` has on Spark Connect, whose parser and planner are on the server.

Index statements and vector searches are found by their words anyway. Besides, queries may name tables by
path, also as of a time: each such name in the text is replaced by a frame, as ``spark.sql`` takes them in
curly brackets. Statements whose plan must be seen here are refused in one line, where Spark would say
something else.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mainstem.errors import Unsupported
from mainstem.options.reading import AS_OF
from mainstem.spark.index_syntax import Token, tokens

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SOURCES = ("MAINSTEM", "HUDI")
_CHANGES = ("DELETE", "UPDATE", "MERGE", "INSERT", "TRUNCATE", "ALTER")
# Where a statement that changes a table names it: INSERT OVERWRITE TABLE t.
_TARGET_BY = 3
_TIMES = ("TIMESTAMP", "VERSION", "SYSTEM_TIME", "SYSTEM_VERSION")
_NO_ALIAS = (
    "WHERE", "JOIN", "ON", "USING", "LEFT", "RIGHT", "FULL", "INNER", "CROSS", "SEMI", "ANTI", "NATURAL",
    "GROUP", "ORDER", "HAVING", "LIMIT", "OFFSET", "UNION", "EXCEPT", "INTERSECT", "MINUS", "LATERAL",
    "WINDOW", "TABLESAMPLE", "SORT", "CLUSTER", "DISTRIBUTE", "PIVOT", "UNPIVOT",
)  # fmt: skip

Place = tuple[int, int, "DataFrame", str]
"""A range of a statement's text, the frame in its place, and the frame's alias, "" for none"""


def answered(
    spark: SparkSession, statement: str, arguments: Mapping[str, Any], refused: Collection[str]
) -> DataFrame | None:
    """The answer to a statement that names tables by path; None for others, which go to Spark.

    ``refused``: procedures and table functions that a classic session has. Raises ``Unsupported`` for them,
    and for statements that change a table of this source.
    """
    known = list(tokens(statement))
    places: list[Place] = []
    for number, token in enumerate(known[:-1]):
        if known[number + 1].is_sign("(") and token.text.lower() in refused:
            raise _refused(token.text)
        if not _is_path(known, number):
            continue
        if known[0].is_word(*_CHANGES) and number <= _TARGET_BY:
            raise _refused(known[0].text.upper())
        places.append(_place(spark, statement, known, number))
    if known and known[0].is_word("CREATE") and any(map(_makes, known, known[1:])):
        raise _refused("CREATE TABLE ... USING hudi")
    return with_frames(spark, statement, places, arguments) if places else None


def path_mentions(spark: SparkSession, text: str) -> list[Place]:
    """The tables that a DELETE, UPDATE or MERGE reads by path besides the one that it changes."""
    known = list(tokens(text))
    found = []
    for number in range(len(known)):
        before = known[max(0, number - 2) : number]
        target = before and (
            before[-1].is_word("UPDATE")
            or (len(before) == 2 and before[0].is_word("DELETE") and before[1].is_word("FROM"))
            or before[-1].is_word("INTO")
        )
        if _is_path(known, number) and not target:
            found.append(_place(spark, text, known, number))
    return found


def _is_path(known: Sequence[Token], number: int) -> bool:
    """Whether mainstem.`/path` begins there."""
    part = known[number : number + 3]
    return len(part) == 3 and part[0].is_word(*_SOURCES) and part[1].is_sign(".") and "/" in part[2].text


def _makes(using: Token, source: Token) -> bool:
    return using.is_word("USING") and source.is_word(*_SOURCES)


def _place(spark: SparkSession, statement: str, known: Sequence[Token], number: int) -> Place:
    path, after = known[number + 2], known[number + 3 : number + 7]
    end = path.at + len(path.text.replace("`", "``")) + 2
    options = {}
    if after and after[0].is_word("FOR"):
        after = after[1:]
    if len(after) > 1 and after[0].is_word(*_TIMES) and after[1].is_word("AS"):
        if len(after) < 4 or after[3].kind not in ("text", "word"):
            raise Unsupported("on Spark Connect the time after AS OF must be a text or a number")
        options[str(AS_OF)] = after[3].text
        quotes = 2 if after[3].kind == "text" else 0
        end = after[3].at + len(after[3].text) + quotes
        after = [token for token in known if token.at >= end][:1]
    frame = spark.read.format("mainstem").options(**options).load(path.text)
    named = bool(after) and (
        after[0].kind == "quoted" or (after[0].kind == "word" and not after[0].is_word(*_NO_ALIAS))
    )
    return known[number].at, end, frame, "" if named else path.text


def with_frames(
    spark: SparkSession, text: str, places: Sequence[Place], arguments: Mapping[str, Any]
) -> DataFrame:
    """``spark.sql`` of a text with frames in some places, which Spark Connect may analyse later than views
    would live."""
    formatted = any(name != "args" for name in arguments)
    parts, at, given = [], 0, {}
    for number, (start, end, frame, alias) in enumerate(sorted(places, key=lambda place: place[0])):
        name = f"mainstem_frame_{number}"
        given[name] = frame
        alias = f" AS `{alias.replace('`', '``')}`" if alias else ""
        parts += [_braced(text[at:start], formatted), f"{{{name}}}", _braced(alias, False)]
        at = end
    parts.append(_braced(text[at:], formatted))
    return spark.sql("".join(parts), **{**arguments, **given})


def _braced(text: str, formatted: bool) -> str:
    """Text in which curly brackets mean what they meant in the statement."""
    return text if formatted else re.sub(r"[{}]", r"\g<0>\g<0>", text)


def _refused(what: str) -> Unsupported:
    return Unsupported(
        f"{what} needs Spark's parser in this process, which Spark Connect keeps on the server: use a classic"
        " session, mainstem.spark.write_batch (operation delete deletes rows), or mainstem.open_table"
    )
