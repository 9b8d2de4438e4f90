"""Makes the files of a plan; any process on any machine that reaches the table may make each of them.

It imports nothing that only a writer needs, because tasks of a cluster import it
(``services.compact_group``). ``services.executor`` explains why this is safe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mainstem.errors import Unavailable
from mainstem.publish.staging import Content, Swept, put_whole
from mainstem.storage import paths
from mainstem.storage.protocol import FileInfo, Storage

#: ``paths.parse_base_name`` and the like: the parsed file name, None for any other name
Parse = Callable[[str], paths.BaseName | paths.LogName | None]


@dataclass(frozen=True)
class Kind:
    """The names that a service uses for its plans.

    ``what``: for people; ``planned``, ``completed``: actions on the timeline; ``operation``: Hudi's name in
    the commit; ``parse``: parses the names of the files that it makes.
    """

    what: str
    planned: str
    completed: str
    operation: str
    parse: Parse


def make_file(
    storage: Storage,
    time: str,
    target: str,
    identity: str,
    content: Callable[[], Content],
    *,
    what: str,
    wanted: Callable[[], bool],
    durable: bool,
    marker: str | None = None,
    then: Callable[[], None] = lambda: None,
) -> FileInfo:
    """Step 4 for the file ``target`` of a plan: make it, or find it already made; any number may try at once.

    ``identity``: hexadecimal text unique to this attempt. ``content`` is called if the file does not exist;
    ``wanted`` says whether the plan still stands. ``then`` is called if this call made the file appear.
    ``what`` names the plan in messages. Raises ``Unavailable`` if another executor ended the plan, and what
    ``content`` raises.
    """
    private = paths.prepared(time, identity)
    ended = Unavailable(
        f"the {what} {time} was ended by another executor, or {target} was removed; nothing was published,"
        " execute it again",
        table=storage.base,
    )
    if storage.stat(target) is None:
        try:
            made = put_whole(
                storage, private, target, content(), durable=durable, wanted=wanted, marker=marker
            )
        except Swept as error:
            if marker is not None and not wanted():
                storage.delete_tree(paths.marker_folder(time))  # who ended the plan removed it once
            raise ended from error
        if made:
            then()
    info = storage.stat(target)
    if info is None:
        raise ended
    return info
