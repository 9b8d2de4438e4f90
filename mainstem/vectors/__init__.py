"""Vector indexes: engines, versions on storage, exact distances, searches."""
