"""The way that Spark's documentation has: its JDBC source, four partitions by the key, into Delta; prints a JSON line.

Run by `benchmarks.copy.run`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from benchmarks.copy.tree import ProcessTree
from etl.spark.jars import find_jars, jars_directory
from etl.spark.java import find_java


def main(url: str, jar: str, lake: str, rows: int) -> None:
    """Read table ``t`` and write it."""
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(find_java(os.environ).resolve().parents[1])
    jars = [*map(str, find_jars(jars_directory(os.environ))), jar]
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(jars))
        .config("spark.driver.memory", "2g")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .getOrCreate()
    )
    tree, started = ProcessTree(os.getpid()), time.perf_counter()
    source = (
        spark.read.format("jdbc")
        .option("url", url)
        .option("dbtable", "t")
        .option("fetchsize", "10000")
        .option("driver", "org.postgresql.Driver")
    )
    parts = source.option("partitionColumn", "id").option("lowerBound", "1").option("upperBound", str(rows))
    parts.option("numPartitions", "4").load().write.format("delta").save(str(Path(lake) / "t"))
    wall = time.perf_counter() - started
    tree.look()
    found = (
        spark.read.format("delta").load(str(Path(lake) / "t")).selectExpr("count(*)", "sum(id)").collect()[0]
    )
    figures = {"wall_s": wall, "cpu_s": tree.cpu_s(), "rss_mb": tree.all_mb, "tree_rss_mb": tree.all_mb}
    print(json.dumps({**figures, "rows": found[0], "ids": found[1]}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
