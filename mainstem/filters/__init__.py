"""What a filter says, apart from any table: read from text or from a pyarrow expression, told as predicates.

Nothing here knows files, indexes or a timeline. A predicate is never stricter than the filter it was made
of, so whatever a predicate rules out may stay unread.
"""
