"""Goal: the house rules that a machine can check hold in every file.

Method: ``ast`` over the package for banned direct calls (clock, randomness, files and threads come
through the seams, so that the simulated world can stand in for them) and for names and docstrings;
plain text search over all files of the project for leftovers and for paths outside it.
"""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "mainstem"
SOURCES = sorted(PACKAGE.rglob("*.py"))

# Module or function -> what kind of direct access it is.
BANNED = {
    **{f"time.{name}": "clock" for name in (
        "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep",
        "localtime", "ctime", "process_time",
    )},
    "datetime.datetime.now": "clock", "datetime.datetime.utcnow": "clock",
    "datetime.datetime.today": "clock", "datetime.date.today": "clock",
    "random": "randomness", "secrets": "randomness", "uuid.uuid1": "randomness",
    "uuid.uuid4": "randomness", "os.urandom": "randomness", "os.getrandom": "randomness",
    "numpy.random": "randomness",
    "threading": "threads", "multiprocessing": "threads", "concurrent": "threads",
    "asyncio": "threads", "subprocess": "threads",
    "open": "files", "io.open": "files", "shutil": "files", "tempfile": "files", "glob": "files",
    "fcntl": "files", "mmap": "files",
    **{f"os.{name}": "files" for name in (
        "open", "listdir", "scandir", "walk", "stat", "lstat", "link", "unlink", "remove", "rename",
        "replace", "mkdir", "makedirs", "rmdir", "utime", "fsync", "fdatasync", "read", "write",
        "truncate", "symlink", "chmod",
    )},
    **{f"os.path.{name}": "files" for name in (
        "exists", "isfile", "isdir", "getmtime", "getsize", "realpath", "islink",
    )},
}  # fmt: skip
# Methods of pathlib.Path, whatever the object is called.
BANNED_METHODS = dict.fromkeys(
    ("read_bytes", "write_bytes", "write_text", "iterdir", "rglob", "hardlink_to"), "files"
)
# Who may do what directly. A folder ends with "/".
ALLOWED = {
    "forks.py": {"threads"},  # the mutex of everybody else
    "telemetry/steps.py": {"clock"},  # how long a step took, which decides nothing
    "storage/all_at_once.py": {"threads"},  # fsyncs side by side
    "storage/inotify.py": {"files"},  # which folder a path leads to
    "storage/local.py": {"files"},
    "storage/side_by_side.py": {"threads"},
    "storage/unwaited.py": {"threads"},
    # A put tells its own object by a nonce; large files are copied to nameless temporary ones.
    "storage/object_store.py": {"randomness", "files"},
    "storage/private_files.py": {"files"},  # nameless ones
    "storage/spill_file.py": {"files"},  # a nameless one
    "storage/local_cache.py": {"files"},
    "storage/store_options.py": {"files"},  # certificates to trust
    # A hidden name that nobody else has; the name node's clock; large files in nameless temporary ones.
    "storage/hdfs.py": {"randomness", "clock", "files"},
    "storage/aws_credentials.py": {"files"},  # profiles
    "storage/hadoop_files.py": {"files"},
    "truetime/clock.py": {"clock", "threads"},
    "truetime/locks/file_system.py": {"files", "threads", "clock"},  # OS locks on the lock file itself
    "truetime/locks/in_process.py": {"threads"},
    "truetime/locks/rename_lock.py": {"threads"},  # the refresh and its holder take turns
    "truetime/locks/storage_lock.py": {"threads"},  # the renewal and its holder take turns
    "truetime/locks/zookeeper.py": {"threads"},  # waits for watches, which kazoo's threads report
    "truetime/locks/zookeeper_session.py": {"threads"},
    "vectors/engines/hnsw.py": {"files"},  # usearch saves to a path or beside itself in memory
    "services/background.py": {"threads"},  # the thread that runs services beside a writer
    "api/real_seams.py": {"randomness", "threads"},  # the composition root makes the real seams
    "spark/": {"clock", "randomness", "threads", "files"},
    "ingestion/": {"clock", "files"},  # the pace of a stream; a folder's files
    "ingestion/postgres_server.py": {"randomness", "clock"},  # when it answered; a slot's name
    "cli/ingest.py": {"threads"},  # an event that signals set
    "flink/": {"clock", "randomness", "threads", "files"},
    "writers/transaction_turns.py": {"threads"},  # a mark that no interrupt leaves set
    "indexing/spill.py": {"files"},  # sorted keys that do not fit into memory
    "api/job_table.py": {"threads", "files"},  # tables that the threads of a process share
    "aio.py": {"threads"},  # calls in threads are what it is for
    "daft.py": {"threads"},  # which asks for rows in an event loop
    "engines/write_job.py": {"randomness"},  # write tokens, which no other attempt has
    "ui/page_server.py": {"threads", "files"},  # connections; the files of the page
    "ui/shown_instants.py": {"randomness"},  # names what was told, for clients
    "ui/row_query.py": {"threads"},  # ends a query that takes too long
    "ui/query_process.py": {"threads", "files"},  # is a process; how much memory it has
    "cli/web_page.py": {"threads"},  # waits for a signal
    "cli/main.py": {"files"},
    "cli/serve_metrics.py": {"clock"},  # when it looked last
    "cli/row_output.py": {"files"},  # the files that a user asks rows to be written to
}
FORBIDDEN_WORDS = {"handler", "manager", "processor", "util", "utils", "helper", "helpers", "misc"}
FORBIDDEN_VERBS = {"process", "handle", "do", "manage"}  # as the first word of a name
GIVEN = {"MainstemIOManager", "handle_output"}  # Dagster's words
TEXT = {".py", ".md", ".toml", ".sh", ".cfg", ".ini", ".txt", ".yml", ".yaml", ".properties", ""}
LEFTOVERS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|breakpoint\(\)|import pdb")
# Paths of one machine.
OUTSIDE = re.compile(r"(?<![\w.])/(?:work|home|root|Users)/")


def _relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def _allowance(relative: str) -> set[str]:
    kinds: set[str] = set()
    for place, allowed in ALLOWED.items():
        if relative == place or (place.endswith("/") and relative.startswith(place)):
            kinds |= allowed
    return kinds


def _aliases(tree: ast.AST) -> dict[str, str]:
    """Local name -> dotted origin, from the import statements."""
    names = {"open": "open"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for a in node.names:
                top = a.name.split(".")[0]
                names[a.asname or top] = a.name if a.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for a in node.names:
                names[a.asname or a.name] = f"{node.module}.{a.name}"
    return names


def _dotted(node: ast.expr, names: dict[str, str]) -> str | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in names:
        return None
    return ".".join([names[node.id], *reversed(parts)])


def _kind(dotted: str) -> str | None:
    """Kind of access of a call, by its longest banned prefix."""
    parts = dotted.split(".")
    for n in range(len(parts), 0, -1):
        kind = BANNED.get(".".join(parts[:n]))
        if kind:
            return kind
    return None


def banned_calls(source: str) -> Iterator[tuple[int, str, str]]:
    """(line, call, kind) of every direct access in a module's text."""
    tree = ast.parse(source)
    names = _aliases(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        dotted = _dotted(node.func, names)
        if dotted and (kind := _kind(dotted)):
            yield node.lineno, dotted, kind
        elif isinstance(node.func, ast.Attribute) and node.func.attr in BANNED_METHODS:
            yield node.lineno, f".{node.func.attr}", BANNED_METHODS[node.func.attr]


@pytest.mark.parametrize("path", SOURCES, ids=_relative)
def test_clock_randomness_files_and_threads_come_through_the_seams(path: Path) -> None:
    allowed = _allowance(_relative(path))
    wrong = [
        f"line {line}: {call} ({kind})"
        for line, call, kind in banned_calls(path.read_text(encoding="utf-8"))
        if kind not in allowed
    ]
    assert not wrong, f"{_relative(path)}: " + "; ".join(wrong)


def test_the_search_for_banned_calls_sees_through_aliases() -> None:
    source = (
        "import time as t\nfrom os import listdir as ls\nfrom datetime import datetime\n"
        "import numpy as np\nt.sleep(1)\nls('.')\ndatetime.now()\nnp.random.rand()\nopen('x')\n"
        "path.write_bytes(b'')\nself.open('x')\n"
    )
    assert [line for line, _, _ in banned_calls(source)] == [5, 6, 7, 8, 9, 10]


def _public(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """Of a function with several signatures its body, which the docstring is on."""
    for node in tree.body:
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or node.name.startswith("_"):
            continue
        if not any(isinstance(mark, ast.Name) and mark.id == "overload" for mark in node.decorator_list):
            yield node


@pytest.mark.parametrize("path", SOURCES, ids=_relative)
def test_modules_and_public_names_have_docstrings(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if not tree.body:
        return
    assert ast.get_docstring(tree), f"{_relative(path)} has no docstring"
    bare = [node.name for node in _public(tree) if not ast.get_docstring(node)]
    assert not bare, f"{_relative(path)}: no docstring on {bare}"


@pytest.mark.parametrize("path", SOURCES, ids=_relative)
def test_names_say_what_a_thing_is(path: Path) -> None:
    relative = _relative(path)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {path.stem} | {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef))
    }
    vague = sorted(
        n
        for n in names - GIVEN
        if (w := _words(n)) and (set(w) & FORBIDDEN_WORDS or w[0] in FORBIDDEN_VERBS)
    )
    assert not vague, f"{relative}: {vague} say nothing; Hudi's words and verbs do"


def _words(name: str) -> list[str]:
    return [w.lower() for w in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)]


def _project_files() -> list[Path]:
    """Files under version control and new ones that are not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    if listed.returncode != 0:  # an unpacked source archive
        names = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.is_file()]
    else:
        names = listed.stdout.splitlines()
    skip = re.compile(r"^\.(git|venv[^/]*|[a-z]+_cache)/|(^|/)__pycache__/|^(build|dist)/")
    return [ROOT / name for name in names if not skip.search(name)]


TEXT_FILES = [
    p
    for p in _project_files()
    if p.suffix in TEXT and p.is_file() and p.stat().st_size < 1_000_000 and p != Path(__file__)
]


def _lines_with(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in TEXT_FILES:
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    return found


def test_nothing_is_left_over() -> None:
    assert not _lines_with(LEFTOVERS)


def test_nothing_points_outside_the_project() -> None:
    assert not _lines_with(OUTSIDE)


def test_lines_fit_in_the_width_that_ruff_is_told() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    width = settings["tool"]["ruff"]["line-length"]
    wide = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in TEXT_FILES
        if path.suffix == ".py" and path.is_relative_to(PACKAGE)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > width
    ]
    assert not wide


def test_no_two_test_files_outside_packages_have_one_name() -> None:
    """pytest imports them by their bare names and would stop the whole run."""
    files = [p for p in (ROOT / "tests").rglob("*.py") if not (p.parent / "__init__.py").exists()]
    names = [p.name for p in files if p.name != "conftest.py"]
    assert sorted(n for n in set(names) if names.count(n) > 1) == []
