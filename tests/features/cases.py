"""Every table feature of delta-spark: how a table gets it, or why deltasql does not support it."""

from __future__ import annotations

from dataclasses import dataclass

PLAIN = "id INT, v STRING"


@dataclass(frozen=True)
class Feature:
    """A feature that tables of deltasql can have; `note` is shown in the documentation."""

    properties: str = ""
    """The properties in CREATE TABLE."""
    columns: str = PLAIN
    """The columns of the table; the first is an integer, the second a string."""
    after: tuple[str, ...] = ()
    """Statements that add the feature to the table `{t}`."""
    note: str = ""


def enabled(key: str, note: str = "") -> Feature:
    """Return a feature that a property enables."""
    return Feature(f"'{key}' = 'true'", note=note)


VARIANTS = f"{PLAIN}, x VARIANT"
COPIED = "Only Spark can use variants in expressions; the embedded engine copies them."
SHREDDED = "Shredded variants are read; new files have variants that are not shredded."
NAMES = "'delta.columnMapping.mode' = 'name'"
SUPPORTED: dict[str, Feature] = {
    "allowColumnDefaults": Feature(
        "'delta.feature.allowColumnDefaults' = 'supported'", f"{PLAIN}, d INT DEFAULT 3"
    ),
    "appendOnly": enabled("delta.appendOnly"),
    "changeDataFeed": enabled("delta.enableChangeDataFeed"),
    "checkConstraints": Feature(after=("ALTER TABLE {t} ADD CONSTRAINT c CHECK (id > 0)",)),
    "checkpointProtection": Feature(
        "'delta.enableDeletionVectors' = 'true'",
        after=("ALTER TABLE {t} DROP FEATURE deletionVectors",),
        note="Added by `DROP FEATURE` of a feature that readers must support.",
    ),
    "clustering": Feature(after=("ALTER TABLE {t} CLUSTER BY (id)",)),
    "columnMapping": Feature(NAMES),
    "deletionVectors": enabled("delta.enableDeletionVectors"),
    "domainMetadata": Feature("'delta.feature.domainMetadata' = 'supported'"),
    "generatedColumns": Feature(columns=f"{PLAIN}, g INT GENERATED ALWAYS AS (id + 1)"),
    "icebergCompatV1": Feature(
        f"'delta.enableIcebergCompatV1' = 'true', {NAMES}",
        note="Without arrays and maps. Partitioned tables only with the embedded engine.",
    ),
    "icebergCompatV2": Feature(
        f"'delta.enableIcebergCompatV2' = 'true', {NAMES}",
        note="Partitioned tables, arrays and maps only with the embedded engine.",
    ),
    "icebergCompatV3": Feature(
        f"'delta.enableIcebergCompatV3' = 'true', 'delta.enableRowTracking' = 'true', {NAMES}",
        note="Partitioned tables, arrays and maps only with the embedded engine.",
    ),
    "identityColumns": Feature(columns=f"{PLAIN}, n BIGINT GENERATED ALWAYS AS IDENTITY"),
    "inCommitTimestamp": enabled("delta.enableInCommitTimestamps"),
    "invariants": Feature(columns="id INT NOT NULL, v STRING"),
    "materializePartitionColumns": enabled(
        "delta.enableMaterializePartitionColumnsFeature",
        "Partitioned tables only with the embedded engine.",
    ),
    "rowTracking": enabled("delta.enableRowTracking"),
    "timestampNtz": Feature(columns=f"{PLAIN}, at TIMESTAMP_NTZ"),
    "typeWidening": enabled("delta.enableTypeWidening"),
    "typeWidening-preview": Feature("'delta.feature.typeWidening-preview' = 'supported'"),
    "v2Checkpoint": Feature("'delta.checkpointPolicy' = 'v2'"),
    "variantShredding": Feature("'delta.enableVariantShredding' = 'true'", VARIANTS, note=SHREDDED),
    "variantShredding-preview": Feature(
        "'delta.feature.variantShredding-preview' = 'supported'", VARIANTS, note=SHREDDED
    ),
    "variantType": Feature(columns=VARIANTS, note=COPIED),
    "variantType-preview": Feature(
        "'delta.feature.variantType-preview' = 'supported'", note=COPIED
    ),
    "vacuumProtocolCheck": Feature("'delta.feature.vacuumProtocolCheck' = 'supported'"),
}
READ_ONLY: dict[str, str] = {
    "coordinatedCommits-preview": "A commit coordinator, not the database, decides which commits "
    "are valid. Reads find the commits that are published in `_delta_log`.",
}
"""Features with which tables can only be read."""
UNSUPPORTED: dict[str, str] = {
    "adaptiveMetadata-preview": "delta-spark enables it only together with "
    "`catalogManaged`, which deltasql does not support.",
    "catalogManaged": "Readers of the path could not read the table.",
    "geospatial": "deltasql does not have the types `geometry` and `geography`. delta-spark "
    "refuses them unless the internal setting `spark.databricks.delta.geo.preview.enabled` is set.",
    "geospatial-dev": "The same types as `geospatial`, under a name that delta-spark adds only if "
    "the property `delta.feature.geospatial-dev` requests it.",
}
"""Features with which tables can be neither read nor written."""
