"""Streams into tables without an engine: Kafka topics, files of a folder, tables of PostgreSQL.

Here live the sources, what makes columns of their records (``json_rows``, ``avro_messages``, ``debezium``),
and the loop that writes and commits them (``ingester``). The offsets of a commit stand in the commit
(``writers/stream_positions``); nothing else remembers how far a stream is.

What may not: the protocol of a commit, which is the writers'; anything that only one engine needs.
"""
