"""Tests of the page in the browser, without a browser; those with one are in `tests/browser`."""
