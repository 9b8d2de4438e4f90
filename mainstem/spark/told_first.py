"""Puts the sentence of our errors first in what Spark says of them.

An error in one of Spark's Python workers comes back as a text of up to 190 lines of Python's and Java's
tracebacks, in the middle of which the sentence stands. Spark turns such texts into exceptions in one place
(``pyspark.errors.exceptions.captured.convert_exception``), which has no hook; so it is wrapped, once. The
exceptions keep their classes, causes and texts; their first and last lines become the sentence. Spark 4.3
shows of an error in a task its parameters, not its text (``PythonException.__str__``); of ours it shows that.
"""

from __future__ import annotations

import re
from typing import Any

_OURS = re.compile(r"^(?:.*?[ :])?mainstem\.errors\.(\w+: .+)$", re.M)
_WRAPPED, _TOLD = "_tells_mainstem_first", "_mainstem_told"


def sentence_in(text: str) -> str | None:
    """``Invalid: what is wrong ...``, of the last error of ours in a text; None without one."""
    found = _OURS.findall(text)
    return str(found[-1]) if found else None


def tell_first() -> None:
    """From now on, in this process."""
    from pyspark.errors.exceptions import captured

    convert = captured.convert_exception
    if getattr(convert, _WRAPPED, False):
        return

    def convert_exception(error: Any) -> Any:
        converted = convert(error)
        told = str(getattr(converted, "_desc", ""))
        sentence = sentence_in(told)
        if sentence is not None and not told.startswith(sentence):
            converted._desc = f"{sentence}\n\nSpark's words:\n{told.strip()}\n\n{sentence}"
            setattr(converted, _TOLD, True)
        return converted

    of_tasks: Any = captured.PythonException
    shown = vars(of_tasks).get("__str__")
    if shown is not None:
        of_tasks.__str__ = lambda error: error._desc if getattr(error, _TOLD, False) else shown(error)

    setattr(convert_exception, _WRAPPED, True)
    captured.convert_exception = convert_exception
