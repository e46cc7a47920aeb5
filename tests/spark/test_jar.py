"""The classes of the jar can be loaded on every supported release of Spark."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pyspark
import pytest

import deltasql.spark

JARS = Path(pyspark.__file__).parent / "jars"
# What Spark 4.0 does not have.
LATER = re.compile(
    r"/connector/catalog/(SupportsSchemaEvolution|Transactional|transactions/|Changelog|TableInfo"
    r"|constraints/|TableChange\$(Add|Drop)Constraint)"
)
NEEDS_LATER = {
    "EvolvingTable",
    "StatementTransaction",
    "TableChangelog",
    "TransactionalDeltaSqlCatalog",
}
"""The classes of the jar that are used on Spark 4.2 and later only."""
LOAD = """
public class Load {
    public static void main(String[] names) {
        for (String name : names) {
            try {
                Class.forName("io.deltasql.spark." + name);
            } catch (NoClassDefFoundError error) {
                System.out.println(name);
            } catch (ClassNotFoundException error) {
                throw new IllegalStateException(error);
            }
        }
    }
}
"""


@pytest.mark.everything("starts a JVM of its own")
def test_only_classes_for_later_releases_need_what_spark_4_0_lacks(tmp_path: Path) -> None:
    """A class is verified when it is loaded: then it may need a class that it never uses."""
    (catalyst,) = JARS.glob("spark-catalyst_*.jar")
    with ZipFile(catalyst) as given, ZipFile(tmp_path / "catalyst.jar", "w") as older:
        for each in given.infolist():
            if not LATER.search(each.filename):
                older.writestr(each.filename, given.read(each))
    with ZipFile(deltasql.spark.jar()) as jar:
        paths = [Path(each) for each in jar.namelist() if each.startswith("io/deltasql/spark/")]
    names = {path.stem for path in paths if path.suffix == ".class" and "$" not in path.stem}
    others = [str(each) for each in JARS.glob("*.jar") if each != catalyst]
    path = ":".join([deltasql.spark.jar(), str(tmp_path / "catalyst.jar"), *others])
    (tmp_path / "Load.java").write_text(LOAD)
    command = ["java", "-Xverify:all", "-XX:TieredStopAtLevel=1", "-cp", path]
    done = subprocess.run(
        [*command, str(tmp_path / "Load.java"), *sorted(names - {"DeltaSqlLogStore"})],
        capture_output=True,
        text=True,
        check=False,
    )
    assert set(done.stdout.split()) == NEEDS_LATER, done.stderr
