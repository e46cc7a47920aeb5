"""Generate the diagrams of the architecture and of a commit."""

from __future__ import annotations

from docs.tools.svg import AMBER, BLUE, GREEN, GREY, RED, Picture


def architecture() -> str:
    """Return the diagram of the interfaces, the components, the storage and the readers."""
    picture = Picture(860, 510, "Architecture: interfaces, transactions, database, files, mirror")
    faces = (
        ("Python", "deltalake's API"),
        ("PySpark", "driver and executors"),
        ("Command line", "deltasql …"),
        ("Console", "deltasql ui"),
    )
    for number, (head, line) in enumerate(faces):
        picture.box(20 + 210 * number, 10, 190, 52, head, line, fill=GREY)
        picture.arrow((115 + 210 * number, 62), (115 + 210 * number, 88))
    picture.frame(20, 92, 820, 128, "deltasql")
    picture.box(40, 122, 240, 78, "Transactions", "one table or many", "conflict rules", fill=GREEN)
    picture.box(310, 122, 240, 78, "Engines", "DuckDB, embedded", "Spark, on executors", fill=GREEN)
    picture.box(580, 122, 240, 78, "Mirror", "publishes commits,", "in order", fill=GREEN)
    picture.arrow((160, 200), (160, 290), label="one SQL transaction", at="start")
    picture.arrow((430, 200), (430, 290), label="written first", at="start")
    picture.arrow((700, 200), (700, 290), label="put if absent", at="start")
    picture.box(
        40,
        294,
        240,
        92,
        "Database",
        "SQLite, DuckDB or PostgreSQL",
        "the log: the authority",
        fill=BLUE,
    )
    picture.box(310, 294, 240, 92, "Data files", "Parquet", "on disk or in a bucket", fill=BLUE)
    picture.box(
        580, 294, 240, 92, "_delta_log", "commits and checkpoints", "next to the data", fill=BLUE
    )
    picture.arrow((430, 446), (430, 390))
    picture.arrow((700, 446), (700, 390))
    picture.box(
        310, 450, 510, 52, "Any Delta reader", "deltalake, delta-spark, DuckDB, polars", fill=GREY
    )
    picture.text(160, 474, "Files of any version:", size=11.5)
    picture.text(160, 491, "one query, no replay", size=11.5)
    picture.arrow((160, 460), (160, 390))
    return picture.to_text()


def commit_path() -> str:
    """Return the diagram of the steps of a commit, and the effect of a crash in each step."""
    picture = Picture(860, 400, "The steps of a commit, and the effect of a crash in each")
    steps = (
        ("Stage", ("record intents", "in SQL"), GREY),
        ("Write", ("Parquet,", "no lock held"), GREY),
        ("Lock", ("heads of all", "tables, by id"), BLUE),
        ("Rules", ("other commits?", "pass or rebase"), BLUE),
        ("COMMIT", ("rows of all", "tables: ratified"), GREEN),
        ("Publish", ("<version>.json,", "put if absent"), AMBER),
        ("Checkpoint", ("when due, of a", "published version"), AMBER),
    )
    width, gap = 108, 14
    for number, (head, lines, fill) in enumerate(steps):
        x = 10 + number * (width + gap)
        picture.box(x, 62, width, 84, head, *lines, fill=fill)
        if number:
            picture.arrow((x - gap, 104), (x - 1, 104))
    span = width + gap
    picture.text(10 + span - gap / 2, 40, "no locks, any duration", size=12)
    picture.text(10 + 3.5 * span - gap / 2, 40, "one short SQL transaction", size=12)
    picture.text(10 + 6 * span - gap / 2, 40, "after the commit, in order", size=12)
    for start, count in ((0, 2), (2, 3), (5, 2)):
        left = 10 + start * span
        picture.line(left, 50, left + count * span - gap, 50)
    left = 10 + 3 * span
    picture.arrow((left + 54, 146), (left + 54, 196), label="conflict", at="start")
    picture.box(
        left - 70, 200, 248, 62, "A typed error", "table, versions, winner, what to do", fill=RED
    )
    picture.arrow((left - 70, 231), (64, 231), (64, 150))
    picture.text(190, 224, "retry from the latest version", size=11.5)
    picture.text(430, 304, "If the process dies here", size=12.5, weight=600)
    picture.box(
        10,
        318,
        2 * span - gap,
        72,
        "nothing happened",
        "files without a commit",
        "have intents; vacuum deletes them",
        fill=GREY,
    )
    picture.box(
        10 + 2 * span,
        318,
        3 * span - gap,
        72,
        "all of it or nothing",
        "answer to COMMIT lost? The id is looked up:",
        "no second commit, no false error",
        fill=BLUE,
    )
    picture.box(
        10 + 5 * span,
        318,
        2 * span - gap,
        72,
        "it is committed",
        "the reconciler publishes it",
        "from SQL",
        fill=AMBER,
    )
    return picture.to_text()
