"""Metrics and spans for whoever watches a process, by the API of OpenTelemetry.

``steps`` is what other rooms call. Nothing here decides anything, and where nobody watches nothing is loaded.
"""
