"""A storage whose process dies at one of the calls that change the file system."""

from __future__ import annotations

from mainstem.storage.local import LocalStorage

CHANGING = (
    "create", "link", "rename", "delete", "delete_folder", "make_folder", "sync_folder", "sync_folders",
)  # fmt: skip


class Died(BaseException):
    """The process is gone."""


class Dying(LocalStorage):
    """``calls_left``: so many changing calls go through, at the next the process dies."""

    calls_left = 10**9

    def __getattribute__(self, name):
        found = super().__getattribute__(name)
        if name not in CHANGING:
            return found

        def counted(*args, **options):
            if self.calls_left <= 0:
                raise Died
            self.calls_left -= 1
            return found(*args, **options)

        return counted
