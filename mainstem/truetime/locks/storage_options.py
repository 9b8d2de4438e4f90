"""Settings of the storage lock, in Hudi's option names (``StorageBasedLockConfig``), and where it works."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mainstem.errors import Invalid, Unsupported
from mainstem.options.locks import FILE_SYSTEM, PROVIDER, RENEW_S, STORAGE, VALIDITY_S
from mainstem.options.tables import EXCLUSIVE
from mainstem.storage.backends import split_scheme
from mainstem.truetime.locks.option_values import shown

# Those for which Java has clients (``StorageSchemes.getStorageLockImplementationIfExists``).
_JAVAS = ("s3", "s3a", "gs", "abfs", "abfss", "wasb", "wasbs")
#: of stores with conditional puts
SCHEMES = (*_JAVAS, "s3n", "az", "memory")
_RENEWALS_MIN = 10


@dataclass(frozen=True, slots=True)
class StorageLockOptions:
    """Validated settings, in milliseconds. ``exclusive``: only mainstem writes; Java needs no turn."""

    validity_ms: int
    renew_ms: int
    exclusive: bool = False

    @classmethod
    def from_properties(cls, props: Mapping[str, str], *, base: str) -> StorageLockOptions:
        """Read Hudi's keys; ``base`` is the table's location as a URL.

        Raises ``Unsupported`` for a store without conditional puts, and ``Invalid`` for values that Hudi
        would refuse too.
        """
        scheme, _ = split_scheme(base)
        if scheme not in SCHEMES:
            raise Unsupported(
                f"{PROVIDER}={shown(STORAGE)}: this lock is an object that is swapped on condition, which"
                f" {shown(base)} does not offer: Hudi has it for {', '.join(_JAVAS)} only. On a local"
                f" disk take {FILE_SYSTEM}",
                table=base,
            )
        validity, renew = VALIDITY_S.read(props), RENEW_S.read(props)
        if validity < _RENEWALS_MIN * renew:
            raise Invalid(
                f"{VALIDITY_S}={validity} and {RENEW_S}={renew}: Hudi wants at least {_RENEWALS_MIN} renewals"
                f" while a lock is valid; set {RENEW_S} to {max(validity // _RENEWALS_MIN, 1)} or less",
                table=base,
            )
        return cls(1000 * validity, 1000 * renew, EXCLUSIVE.read(props))
