"""For all tests: what the marks `supports(group, feature)` of passed tests add up to, and what failed.

`--support-report FILE` adds this run's results to a JSON file (group -> feature -> tests that passed);
`scripts/support_table.py` makes docs/support.md of it.

`--at-once` tells failures when they happen, too: a run that is ended from outside has told them then.

`--outcomes FOLDER` notes there, for `.ci/run`, which tests failed. Tests in `NOTHING_LOST` and those with
that mark look for lost, doubled or changed rows while processes die: a failure of theirs counts at once.

`--store NAME` runs tests on tables in another store than the disk (`tests/suite_store.py`), `--sample 1/N`
one in N of the tests (`tests/samples.py`).

Tests with hypothesis try the same examples every time; `--hypothesis-profile=search` looks for new ones.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import quiet_writers, samples, suite_store  # noqa: F401

# A busy machine is no finding.
PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("same", derandomize=True, **PATIENT)
settings.register_profile("search", **PATIENT)
settings.load_profile("same")

GROUPS = (
    "Column types", "Merging", "Queries", "Tables and layouts", "Keys and partitions", "Writing", "Locks",
    "Stores", "Engines",
    "Services",
    "Indexes",
    "Vectors",
)  # fmt: skip

TESTS = Path(__file__).parent
NOTHING_LOST = {
    "chaos", "crash", "model", "sim", "stores/test_kafka_topics.py",
    "demos/test_collision.py", "demos/test_main_job.py",
    "interop/test_interop_beside_services.py", "interop/test_interop_concurrent.py",
    "interop/test_interop_curator.py", "interop/test_interop_ensemble.py",
    "multiprocess/test_flink_committers.py", "multiprocess/test_services_processes.py",
    "multiprocess/test_writer_processes.py", "multiprocess/test_zookeeper_writers.py",
    "publish/test_gate_fence.py",
    "spark/test_cluster.py", "spark/test_exactly_once.py",
}  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--support-report", metavar="FILE", help="add what passed tests prove to this JSON file")
    parser.addoption("--at-once", action="store_true", help="tell failures when they happen, too")
    suite_store.add_options(parser)
    samples.add_options(parser)
    parser.addoption("--outcomes", metavar="FOLDER", help="note there which tests failed")


@pytest.fixture(autouse=True, scope="session")
def tables_in_a_store(pytestconfig: pytest.Config) -> Iterator[None]:
    with suite_store.tables_in(pytestconfig):
        yield


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    samples.sampled(config, items)
    suite_store.leave_out(config.getoption("--store"), items)
    for item in items:
        if _looks_for_losses(item.path):
            item.add_marker("nothing_lost")
        for mark in item.iter_markers("supports"):
            if len(mark.args) != 2 or mark.kwargs or mark.args[0] not in GROUPS:
                raise pytest.UsageError(
                    f"{item.nodeid}: supports{mark.args} should be supports(group, feature), with a group of"
                    f" {', '.join(GROUPS)}"
                )
            item.user_properties.append(("supports", mark.args))  # goes from xdist's processes to ours


def _looks_for_losses(path: Path) -> bool:
    place = path.relative_to(TESTS) if path.is_relative_to(TESTS) else path
    return bool({place.parts[0], place.as_posix()} & NOTHING_LOST)


class _SupportReport:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.proved: dict[tuple[str, str], set[str]] = {}
        self.broken: set[tuple[str, str]] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for feature in (tuple(value) for name, value in report.user_properties if name == "supports"):
            if report.failed:
                self.broken.add(feature)
            elif report.when == "call" and report.passed:
                self.proved.setdefault(feature, set()).add(report.nodeid.split("::")[0])

    def pytest_sessionfinish(self) -> None:
        known = json.loads(self.path.read_text()) if self.path.exists() else {}
        for group, feature in self.broken:
            known.get(group, {}).pop(feature, None)
        for (group, feature), files in self.proved.items():
            if (group, feature) not in self.broken:
                known.setdefault(group, {})[feature] = sorted(files)
        self.path.write_text(json.dumps(known, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


class _Outcomes:
    """``again``: names of tests that failed. ``final``: of what failed for good. ``running-*``: one is there
    as long as a run has not come to its end, ``ended-*`` afterwards; one without a test never does."""

    def __init__(self, folder: Path, root: Path, *, repeats: bool = True) -> None:
        self.repeats = repeats  # alone a test would run as on a disk
        folder.mkdir(parents=True, exist_ok=True)
        number, running = tempfile.mkstemp(prefix="running-", dir=folder)
        os.close(number)
        self.folder, self.running, self.root = folder, Path(running), root

    def _note(self, kind: str, name: str) -> None:
        with open(self.folder / kind, "a") as file:
            file.write(f"{name}\n")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._note("final", report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            # Of a test in which a process of xdist died nothing is known but its name.
            lost = _looks_for_losses(self.root / report.nodeid.partition("::")[0])
            final = lost or "nothing_lost" in report.keywords or not self.repeats
            self._note("final" if final else "again", report.nodeid)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            self.running.rename(self.folder / self.running.name.replace("running", "ended"))


class _AtOnce:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            terminal = self._config.pluginmanager.get_plugin("terminalreporter")
            terminal.write_line(f"\n{report.nodeid} failed after {report.duration:.0f} s:", red=True)
            terminal.write_line(report.longreprtext)


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return
    if (store := config.getoption("--store")) in suite_store.SERVERS:
        config.pluginmanager.register(suite_store.Server(store), "suite_server")
    if config.getoption("--at-once"):
        config.pluginmanager.register(_AtOnce(config))
    if path := config.getoption("--support-report"):
        config.pluginmanager.register(_SupportReport(Path(path).absolute()))
    if path := config.getoption("--outcomes"):
        repeats = config.getoption("--store") is None
        config.pluginmanager.register(_Outcomes(Path(path).absolute(), config.rootpath, repeats=repeats))
