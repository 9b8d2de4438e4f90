"""Tests of the page in Chromium: `make ui`."""
