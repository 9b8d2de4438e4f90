"""Tests of table services."""
