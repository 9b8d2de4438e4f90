"""Parses times from callers, in the forms that Hudi's ``as.of.instant`` accepts (HoodieSqlCommonUtils)."""

from __future__ import annotations

import re
from datetime import datetime

from mainstem.errors import Invalid

_DIGITS = re.compile(r"^[0-9]{14}([0-9]{3})?\Z")
_FORMATS = ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S.%f")


def instant_time(text: str, what: str) -> str:
    """17 digits from ``yyyyMMddHHmmss[SSS]``, ``yyyy-MM-dd`` or ``yyyy-MM-dd HH:mm:ss[.SSS]``.

    The text is in the table's time zone. Raises ``Invalid``; ``what`` names the option in the message.
    """
    if isinstance(text, str):
        if _DIGITS.match(text):
            return text if len(text) == 17 else text + "000"
        for form in _FORMATS:
            try:
                moment = datetime.strptime(text, form)
            except ValueError:
                continue
            return moment.strftime("%Y%m%d%H%M%S") + f"{moment.microsecond // 1000:03d}"
    raise Invalid(
        f"{what}={text!r} is no time; expected yyyyMMddHHmmssSSS, yyyy-MM-dd or"
        " yyyy-MM-dd HH:mm:ss[.SSS] in the table's time zone"
    )
