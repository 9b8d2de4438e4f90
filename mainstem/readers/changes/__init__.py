"""What a range of instants changed: incremental queries, change sets with deletes, change data (CDC).

A range is a range of completion times. A range with missing files is refused: the feed never has holes.
"""
