"""For all tests: what the marks `supports(group, feature)` of passed tests add up to.

`--support-report FILE` adds this run's results to a JSON file (group -> feature -> tests that passed);
`scripts/support_table.py` makes README's table of it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

GROUPS = (
    "Column types", "Merging", "Queries", "Tables and layouts", "Keys and partitions", "Writing", "Locks",
    "Engines",
    "Services",
    "Indexes",
)  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--support-report", metavar="FILE", help="add what passed tests prove to this JSON file")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in item.iter_markers("supports"):
            if len(mark.args) != 2 or mark.kwargs or mark.args[0] not in GROUPS:
                raise pytest.UsageError(
                    f"{item.nodeid}: supports{mark.args} should be supports(group, feature), with a group of"
                    f" {', '.join(GROUPS)}"
                )
            item.user_properties.append(("supports", mark.args))  # goes from xdist's processes to ours


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


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--support-report")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_SupportReport(Path(path).absolute()))
