"""Build the bundle of an unreleased Hudi, by which `make interop` judges tables of version 10.

    python scripts/hudi_snapshot.py TREE        a copy of Hudi's sources, such as a clone of apache/hudi

`MAINSTEM_HUDI_TREE` may name the tree instead. Nothing in it changes: poms are edited in a copy, and the
bundle is put where the tests look for it (`tests/interop/snapshot_judge.py`). It takes Maven, Java 17, 4 GB
of memory and a quarter of an hour; what Maven downloads are released libraries. The docs tell what Hudi's
commit `65cf7e8ede` did.

Of the poms goes what a bundle of Spark does not need and Maven Central does not have: what only tests need,
the profile of a file format in its first version, repositories of other vendors. Hive and Hadoop are Spark's.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

VARIABLE = "MAINSTEM_HUDI_TREE"
FOLDER = Path.home() / ".cache" / "hudi-snapshot"
BUNDLE = "packaging/hudi-spark-bundle"
MAVEN = (
    "mvn", "-B", "-P", "!vortex", "-Dspark3.5", "-Dscala-2.12", "-DskipTests", "-Dmaven.test.skip=true",
    "-Dcheckstyle.skip", "-Drat.skip", "-Dscalastyle.skip", "-pl", BUNDLE, "-am", "install",
)  # fmt: skip

_NAMESPACE = "http://maven.apache.org/POM/4.0.0"
#: what Spark brings along, so that no bundle needs it
_SPARKS = ("hive-exec", "hadoop-client")
_OTHER_REPOSITORIES = ("confluent", "jitpack", "cloudera")
_HIVE = {"groupId": "${hive.groupid}", "artifactId": "hive-exec", "classifier": "${hive.exec.classifier}"}
_HADOOP = {"groupId": "org.apache.hadoop", "artifactId": "hadoop-client"}
#: modules that are compiled with them, and got them by way of what only tests need
_COMPILED_WITH = {
    "hudi-sync/hudi-hive-sync": (_HIVE,),
    "hudi-spark-datasource/hudi-spark3.5.x": (_HADOOP, _HIVE),
}


def _named(name: str) -> str:
    return f"{{{_NAMESPACE}}}{name}"


def edit_poms(tree: Path) -> int:
    """Edit every pom below ``tree``; how many there are."""
    ET.register_namespace("", _NAMESPACE)
    poms = sorted(tree.rglob("pom.xml"))
    for pom in poms:
        parsed = ET.parse(pom)
        _edit(parsed.getroot(), str(pom.parent.relative_to(tree)))
        parsed.write(pom, encoding="utf-8", xml_declaration=True)
    return len(poms)


def _edit(root: ET.Element, module: str) -> None:
    parents = {child: parent for parent in root.iter() for child in parent}

    def is_managed(element: ET.Element) -> bool:
        while element in parents:
            element = parents[element]
            if element.tag == _named("dependencyManagement"):
                return True
        return False

    for dependency in list(root.iter(_named("dependency"))):
        of_tests = dependency.findtext(_named("scope")) == "test"
        of_tests = of_tests or dependency.findtext(_named("type")) == "test-jar"
        if of_tests and not is_managed(dependency):
            parents[dependency].remove(dependency)
        elif dependency.findtext(_named("artifactId")) in _SPARKS:
            _put(dependency, "scope", "provided")
    for profile in list(root.iter(_named("profile"))):
        if profile.findtext(_named("id")) == "vortex":
            parents[profile].remove(profile)
    for kind in ("repositories", "pluginRepositories"):
        for repositories in root.iter(_named(kind)):
            for one in list(repositories):
                if any(word in (one.findtext(_named("url")) or "") for word in _OTHER_REPOSITORIES):
                    repositories.remove(one)
    for needed in _COMPILED_WITH.get(module, ()):
        dependencies = root.find(_named("dependencies"))
        assert dependencies is not None, f"{module} has no dependencies"
        made = ET.SubElement(dependencies, _named("dependency"))
        for name, text in {**needed, "scope": "provided"}.items():
            _put(made, name, text)


def _put(element: ET.Element, name: str, text: str) -> None:
    found = element.find(_named(name))
    if found is None:
        found = ET.SubElement(element, _named(name))
    found.text = text


def build(tree: Path) -> Path:
    """The bundle, in ``FOLDER``. Raises ``subprocess.CalledProcessError`` if Maven fails."""
    with tempfile.TemporaryDirectory(prefix="hudi-snapshot-") as scratch:
        copy = Path(scratch) / "hudi"
        shutil.copytree(tree, copy, ignore=shutil.ignore_patterns("target", ".git"))
        print(f"{edit_poms(copy)} poms edited; Maven builds {BUNDLE}", flush=True)
        memory = {"MAVEN_OPTS": "-Xmx2500m", **os.environ}
        subprocess.run(MAVEN, cwd=copy, env=memory, check=True)
        found = [p for p in (copy / BUNDLE / "target").glob("hudi-spark3.5-bundle_2.12-*.jar")
                 if not p.name.endswith("-sources.jar")]  # fmt: skip
        FOLDER.mkdir(parents=True, exist_ok=True)
        part = FOLDER / f".{found[0].name}.part"
        shutil.copy(found[0], part)
        return part.rename(FOLDER / found[0].name)


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("tree", nargs="?", default=os.environ.get(VARIABLE), metavar="TREE", type=Path)
    tree = parser.parse_args().tree
    if tree is None or not (Path(tree) / BUNDLE / "pom.xml").exists():
        print(f"{tree}: no tree of Hudi's sources; give its path, or name it in {VARIABLE}", file=sys.stderr)
        return 1
    if shutil.which(MAVEN[0]) is None:
        print("mvn is not there: install Maven", file=sys.stderr)
        return 1
    print(build(Path(tree)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
