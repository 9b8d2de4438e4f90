"""Goal: each option stands in the package once, in its declaration, and the reference page shows them all.

Method: string constants of every module are read with ``ast``; the page is compared with what
scripts/options_table.py makes; a few declarations are read.
"""

from __future__ import annotations

import ast
import copy
import pickle
import re
from collections import Counter
from pathlib import Path

import pytest

import mainstem.options
from mainstem.errors import Invalid
from mainstem.options import placing, services, writing
from mainstem.options.declaration import Flag, Whole, every_option
from scripts.options_table import GROUPS, PAGE, page

PACKAGE = Path(mainstem.options.__file__).parent.parent
MODULES = [p for p in sorted(PACKAGE.rglob("*.py")) if "options" not in p.relative_to(PACKAGE).parts[:1]]
NAMES = {name for option in every_option() for name in (*option.names, option.flink) if "." in name}
LOOKS_LIKE_ONE = re.compile(r"(hoodie|mainstem)(\.[a-z][a-z0-9_]*)+$")
_ANY = "|".join(re.escape(name) for name in sorted(NAMES, key=len, reverse=True))
INSIDE = re.compile(rf"(?<![\w.])({_ANY})(?![\w.]*\w)")
#: what looks like an option and is none
NO_OPTIONS = {
    "hoodie.mainstem.file.groups": "a property of a metadata partition's metafile",
    "mainstem.flink.parts": "a key of a commit's metadata",
    "mainstem.rows.ordered.by": "a key of base files' footers",
    "mainstem.placed.anew": "a key of an inflight file",
    "mainstem.resized": "a key of a commit's metadata",
    "mainstem.rolled.back.completion": "a key of a rollback's metadata",
    "mainstem.stream.guard": "a key of a commit's metadata",
    "mainstem.stream.positions": "a key of a commit's metadata",
    "mainstem.writer": "a key of Avro files",
    "mainstem.zookeeper": "a logger",
}
#: readers that are no module
OTHER_READERS = {"jobs of engines", "create_table", "services (rounds)", "Java's writers", "nobody"}


def _texts(tree: ast.AST) -> list[tuple[int, str]]:
    """String constants and their lines, without docstrings and the pieces of f-strings' formats."""
    documents = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents
    ]


def _is_a_module(dotted: str) -> bool:
    place = PACKAGE.joinpath(*dotted.removeprefix("mainstem.").split("."))
    return place.is_dir() or place.with_suffix(".py").is_file()


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_no_module_but_the_declarations_spells_an_option(path: Path) -> None:
    found = []
    for line, text in _texts(ast.parse(path.read_text(encoding="utf-8"))):
        spelt = LOOKS_LIKE_ONE.match(text) and not (text.startswith("mainstem.") and _is_a_module(text))
        if text not in NO_OPTIONS and (spelt or text in NAMES or INSIDE.search(text)):
            found.append(f"line {line}: {text!r}")
    assert not found, "refer to the declaration in mainstem/options"


def test_a_spelling_would_be_found() -> None:
    module = ast.parse('"""hoodie.x"""\nKEY = "hoodie.x.y"\nf"{KEY}=1: compaction"')
    texts = [text for _, text in _texts(module)]
    assert [bool(LOOKS_LIKE_ONE.match(text)) for text in texts] == [True, False]
    assert INSIDE.search("set hoodie.clean.policy=KEEP") and not INSIDE.search("hoodie.clean.policy.of.mine")


def test_no_name_means_two_options() -> None:
    spelt = Counter(name for option in every_option() for name in option.names)
    twice = {name for name, count in spelt.items() if count > 1}
    assert twice == {"hoodie.table.precombine.field"}  # Hudi 1.0's property, and a name of the newer one


def test_every_declaration_says_who_reads_it_and_what_it_does() -> None:
    for option in every_option():
        assert option.says.endswith(".") and len(option.says) <= 200, option
        for reader in option.read_by.split(", "):
            assert reader in OTHER_READERS or _is_a_module(reader), (option, reader)
        assert bool(option.why) <= bool(option.only), option


def test_every_group_of_declarations_is_on_the_page() -> None:
    groups = {path.stem for path in (PACKAGE / "options").glob("*.py")}
    assert groups - {"__init__", "declaration", "families"} == set(GROUPS)
    text = page()
    assert all(f"| `{option}` |" in text for option in every_option())


def test_the_page_is_what_the_declarations_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python scripts/options_table.py"


def test_an_option_is_its_name() -> None:
    option = services.CLEAN_COMMITS
    assert {option: "3"} == {"hoodie.clean.commits.retained": "3"}
    assert f"{option}=3" == "hoodie.clean.commits.retained=3"
    for other in (pickle.loads(pickle.dumps(option)), copy.deepcopy(option), str(option)):
        assert other == option and type(other) is str


def test_an_option_is_read_with_its_default_its_older_name_and_its_bounds() -> None:
    option = services.CLEAN_COMMITS
    assert option.read({}) == 10 and option.read({}, 7) == 7
    assert option.read({"hoodie.cleaner.commits.retained": "3"}) == 3
    assert option.read({option: "4", "hoodie.cleaner.commits.retained": "3"}) == 4
    assert writing.GZIP_LEVEL.read_if_given({}) is None
    with pytest.raises(Invalid, match=r"hoodie\.cleaner\.commits\.retained='0', expected a whole number"):
        option.read({"hoodie.cleaner.commits.retained": "0"})
    with pytest.raises(Invalid, match=r"hoodie\.mainstem\.fsync='maybe', expected true or false"):
        writing.FSYNC.read({"hoodie.mainstem.fsync": "maybe"})
    with pytest.raises(Invalid, match=r"hoodie\.clean\.policy='ALL', expected KEEP_LATEST_COMMITS or "):
        services.CLEAN_POLICY.read({"hoodie.clean.policy": "all"})
    assert placing.BUCKETS.read({}) == 256


def test_an_option_is_declared_once_and_never_changed() -> None:
    with pytest.raises(ValueError, match="declared twice"):
        Flag("hoodie.mainstem.fsync", False)
    with pytest.raises(AttributeError):
        writing.FSYNC.default = False  # type: ignore[misc]
    assert isinstance(services.CLEAN_COMMITS, Whole)
