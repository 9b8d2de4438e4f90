"""Goal: what pip installs is whole, light, and enough for README's first example.

Method: sdist and wheel are built as `make dist` builds them, of a copy of the sources. pip installs the wheel
without extras, without any index, into an empty environment that holds links to the declared dependencies of
this one; so pip itself says whether these suffice, nothing is downloaded, and nothing else can be imported.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.readme import example

ROOT = Path(__file__).resolve().parents[1]
BUILDER = ROOT / ".venv-dist" / "bin" / "python"
DEPENDENCIES = {"pyarrow", "numpy", "fastavro", "isal"}
#: beside the package those that Spark finds by their names
PACKAGES = {"mainstem", "pyspark_mainstem", "pyspark_mainstem_hudi", "pyspark_mainstem_apache_hudi"}
MOST_BYTES = 2_000_000
# Left behind by builds and runs, or large and never packed.
NOT_SOURCES = {"build", "dist", "mainstem.egg-info", "spark-warehouse", "tests/golden"}


@dataclass(frozen=True)
class Built:
    """What `make dist` leaves, and the names of the wheel's files."""

    wheel: Path
    sdist: Path

    @property
    def names(self) -> set[str]:
        with zipfile.ZipFile(self.wheel) as archive:
            return {name for name in archive.namelist() if not name.endswith("/")}

    @property
    def distribution(self) -> metadata.Distribution:
        folder = next(name.split("/")[0] for name in self.names if ".dist-info/" in name)
        return metadata.PathDistribution(zipfile.Path(self.wheel, f"{folder}/"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    if not BUILDER.exists():
        pytest.fail(f"{BUILDER} is missing; run: make setup-dev")
    folder = tmp_path_factory.mktemp("package")
    shutil.copytree(ROOT, folder / "sources", ignore=_no_sources)
    dist = folder / "dist"
    _said(BUILDER, "-m", "build", "--no-isolation", "--outdir", dist, folder / "sources", at=folder)
    return Built(*sorted(dist.glob("*.whl")), *sorted(dist.glob("*.tar.gz")))


@pytest.fixture(scope="module")
def bare(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel and links to what it says that it needs."""
    folder = tmp_path_factory.mktemp("bare")
    _said(sys.executable, "-m", "venv", "--without-pip", folder, at=folder)
    python = folder / "bin" / "python"
    packages = Path(_said(python, "-c", "import site; print(site.getsitepackages()[0])", at=folder).strip())
    for name in _needed(built.distribution):
        _link(metadata.distribution(name), packages)
    # pip looks at what the wheel needs and refuses it where a dependency is missing or too old.
    _said(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", built.wheel, at=folder)
    return python


def _no_sources(folder: str, names: list[str]) -> list[str]:
    place = Path(folder).relative_to(ROOT)
    return [n for n in names if n.startswith((".", "__pycache__")) or (place / n).as_posix() in NOT_SOURCES]


def _needed(distribution: metadata.Distribution) -> set[str]:
    """Names of what it needs without extras on this machine, and of what these need."""
    names = set()
    for text in distribution.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            names |= {requirement.name, *_needed(metadata.distribution(requirement.name))}
    return names


def _link(distribution: metadata.Distribution, packages: Path) -> None:
    tops = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
    for top in tops:
        (packages / top).symlink_to(Path(str(distribution.locate_file(top))))


def _said(*command: object, at: Path) -> str:
    """What a command printed that ran in ``at``, without paths and pip's settings of this process."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PIP_", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [str(part) for part in command], cwd=at, env={**plain, "PIP_CONFIG_FILE": os.devnull},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_the_first_example_of_the_readme_runs_with_the_wheel_alone(bare: Path, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(example("Python", tmp_path))
    # -I: neither the current folder nor PYTHONPATH is looked at.
    assert _said(bare, "-I", "example.py", at=tmp_path) == "[{'id': 'a', 'fare': 12.0}]\n"
    timeline = _said(bare.parent / "mainstem", "timeline", tmp_path / "trips", "--json", at=tmp_path)
    assert [json.loads(line)["state"] for line in timeline.splitlines()] == ["completed"] * 2


def test_nothing_but_the_declared_dependencies_is_there(bare: Path, tmp_path: Path) -> None:
    program = (
        "import importlib.metadata as m, json, mainstem, sys\n"
        "print(json.dumps([mainstem.__file__, sorted({d.name for d in m.distributions()})]))"
    )
    place, there = json.loads(_said(bare, "-I", "-c", program, at=tmp_path))
    assert set(there) == {"mainstem", *DEPENDENCIES}
    assert Path(place).is_relative_to(bare.parents[1])


def test_every_module_is_imported_or_names_an_extra(bare: Path, tmp_path: Path) -> None:
    """A dependency that nobody declared would be missed here, and only here."""
    program = (
        "import importlib, json, mainstem, pkgutil\n"
        "missed = {}\n"
        "for module in pkgutil.walk_packages(mainstem.__path__, 'mainstem.', missed.get):\n"
        "    try:\n"
        "        importlib.import_module(module.name)\n"
        "    except ModuleNotFoundError as error:\n"
        "        missed[module.name] = error.name\n"
        "print(json.dumps(missed))"
    )
    missed = json.loads(_said(bare, "-I", "-c", program, at=tmp_path))
    rooms = {
        "pyspark": "mainstem.spark.", "pyflink": "mainstem.flink.", "pandas": "mainstem.flink.",
        "pyiceberg": "mainstem.iceberg.",
    }  # fmt: skip
    rooms |= {engine: f"mainstem.{engine}" for engine in ("ray", "daft", "dask", "dbt", "dagster")}
    strange = {
        module: name
        for module, name in missed.items()
        if not module.startswith(rooms.get(name.split(".")[0], "nowhere"))
    }
    assert strange == {}


def test_the_wheel_holds_the_package_and_nothing_else(built: Built) -> None:
    folders = {name.split("/")[0] for name in built.names}
    assert {f for f in folders if not f.endswith(".dist-info")} == PACKAGES
    sources = {
        path.relative_to(ROOT).as_posix()
        for package in sorted(PACKAGES)
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in built.names if ".dist-info/" not in name} == sources
    assert {Path(name).suffix for name in sources} == {
        ".py", ".avsc", ".java", ".typed", ".html", ".css", ".js", ".svg",
    }  # fmt: skip


def test_the_seeded_bugs_and_the_simulated_world_stay_at_home(built: Built) -> None:
    assert not [name for name in built.names if name.startswith("mainstem/testing")]


def test_the_package_tells_type_checkers_of_its_types_and_lawyers_of_its_license(built: Built) -> None:
    assert "mainstem/py.typed" in built.names
    told = built.distribution
    assert told.metadata["License-Expression"] == "Apache-2.0"
    assert told.read_text("licenses/LICENSE") == (ROOT / "LICENSE").read_text()
    assert "Version 2.0, January 2004" in (ROOT / "LICENSE").read_text()


def test_the_package_is_light(built: Built) -> None:
    assert built.wheel.stat().st_size <= MOST_BYTES
    plain = {
        Requirement(text).name for text in built.distribution.requires or () if "extra ==" not in text
    }
    assert plain == DEPENDENCIES


def test_the_sdist_builds_the_wheel_and_holds_no_tests(built: Built) -> None:
    """`build` makes the wheel of the sdist, so what the wheel needs is in there."""
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml"} <= names
    assert not [name for name in names if re.match(r"(tests|demos|benchmarks)/", name)]


def test_versions_agree(built: Built) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    import mainstem

    assert built.distribution.version == project["version"] == mainstem.__version__
