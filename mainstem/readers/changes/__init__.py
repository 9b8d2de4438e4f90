"""What a range of instants changed: incremental queries, change sets with deletes, change data (CDC).

A range is one of completion times. A change feed with holes is refused, never answered.
"""
