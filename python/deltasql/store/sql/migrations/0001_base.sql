-- The log of every table of one catalog. Types in braces are rendered for each database.

CREATE TABLE dl_meta (
  key {text} PRIMARY KEY,
  value {text} NOT NULL
){strict};

CREATE TABLE dl_namespaces (
  namespace {text} PRIMARY KEY,
  created_at_ms {bigint} NOT NULL,
  properties {text} NOT NULL DEFAULT '{}'
){strict};

{table_id_sequence}

-- live_name is 'namespace/name' while the table lives and NULL once it is dropped,
-- so a plain unique constraint keeps names unique among live tables on every database.
CREATE TABLE dl_tables (
  table_id {table_id_key},
  table_uuid {text} NOT NULL UNIQUE,
  namespace {text} NOT NULL,
  name {text} NOT NULL,
  live_name {text} UNIQUE,
  location {text} NOT NULL,
  created_at_ms {bigint} NOT NULL,
  dropped_at_ms {bigint},
  properties {text} NOT NULL DEFAULT '{}'
){strict};

CREATE TABLE dl_table_heads (
  table_id {bigint} PRIMARY KEY,
  version {bigint} NOT NULL,
  committed_at_ms {bigint} NOT NULL,
  next_file_id {bigint} NOT NULL,
  metadata_version {bigint} NOT NULL,
  protocol_version {bigint} NOT NULL
){strict}{hot_rows};

CREATE TABLE dl_table_versions (
  table_id {bigint} NOT NULL,
  version {bigint} NOT NULL,
  committed_at_ms {bigint} NOT NULL,
  txn_id {text} NOT NULL,
  group_size {bigint} NOT NULL,
  operation {text},
  operation_parameters {text},
  operation_metrics {text},
  engine_info {text},
  user_metadata {text},
  is_blind_append {bool},
  read_version {bigint},
  isolation_level {text},
  commit_timestamp {bigint},
  in_commit_timestamp {bigint},
  extra {text},
  next_file_id {bigint} NOT NULL,
  PRIMARY KEY (table_id, version)
){strict}{without_rowid};
CREATE UNIQUE INDEX dl_table_versions_txn ON dl_table_versions (txn_id, table_id);
CREATE INDEX dl_table_versions_time ON dl_table_versions (table_id, committed_at_ms);

CREATE TABLE dl_partitions (
  table_id {bigint} NOT NULL,
  partition_id {bigint} NOT NULL,
  partition_values {text} NOT NULL,
  PRIMARY KEY (table_id, partition_id)
){strict};
CREATE UNIQUE INDEX dl_partitions_values ON dl_partitions (table_id, partition_values);

-- One row is one life of a file: a path that is added, removed and added again has two.
CREATE TABLE dl_add_files (
  table_id {bigint} NOT NULL,
  file_id {bigint} NOT NULL,
  path {text} NOT NULL,
  path_key {blob} NOT NULL,
  partition_id {bigint} NOT NULL,
  size {bigint} NOT NULL,
  modification_time {bigint} NOT NULL,
  data_change {bool} NOT NULL,
  stats {text},
  num_records {bigint},
  tags {text},
  deletion_vector {text},
  base_row_id {bigint},
  default_row_commit_version {bigint},
  clustering_provider {text},
  extra {text},
  added_version {bigint} NOT NULL,
  removed_version {bigint},
  PRIMARY KEY (table_id, file_id)
){strict};
{live_path_index}
{partition_index}
{removed_index}

CREATE TABLE dl_remove_files (
  table_id {bigint} NOT NULL,
  version {bigint} NOT NULL,
  ordinal {bigint} NOT NULL,
  path {text} NOT NULL,
  deletion_timestamp {bigint},
  extended_file_metadata {bool},
  partition_values {text},
  size {bigint},
  stats {text},
  tags {text},
  deletion_vector {text},
  base_row_id {bigint},
  default_row_commit_version {bigint},
  extra {text},
  PRIMARY KEY (table_id, version, ordinal)
){strict};

-- Files from first_file_id up to end_file_id have a row in dl_file_stats for the column.
CREATE TABLE dl_skipping_columns (
  table_id {bigint} NOT NULL,
  column_id {bigint} NOT NULL,
  path {text} NOT NULL,
  type {text} NOT NULL,
  first_file_id {bigint} NOT NULL,
  end_file_id {bigint},
  PRIMARY KEY (table_id, column_id)
){strict};

-- A row covers the files file_id..last_file_id of one commit; keys compare as bytes.
CREATE TABLE dl_file_stats (
  table_id {bigint} NOT NULL,
  column_id {bigint} NOT NULL,
  file_id {bigint} NOT NULL,
  last_file_id {bigint} NOT NULL,
  min_key {blob},
  max_key {blob},
  null_count {bigint},
  num_records {bigint},
  PRIMARY KEY (table_id, column_id, file_id)
){strict}{without_rowid};

CREATE TABLE dl_metadata_updates (
  table_id {bigint} NOT NULL,
  version {bigint} NOT NULL,
  id {text} NOT NULL,
  name {text},
  description {text},
  schema_string {text} NOT NULL,
  partition_columns {text} NOT NULL,
  configuration {text} NOT NULL,
  format {text} NOT NULL,
  created_time {bigint},
  extra {text},
  PRIMARY KEY (table_id, version)
){strict};

CREATE TABLE dl_protocol_updates (
  table_id {bigint} NOT NULL,
  version {bigint} NOT NULL,
  min_reader_version {bigint} NOT NULL,
  min_writer_version {bigint} NOT NULL,
  reader_features {text},
  writer_features {text},
  extra {text},
  PRIMARY KEY (table_id, version)
){strict};

CREATE TABLE dl_txn_actions (
  table_id {bigint} NOT NULL,
  app_id {text} NOT NULL,
  version {bigint} NOT NULL,
  txn_version {bigint} NOT NULL,
  last_updated {bigint},
  extra {text},
  PRIMARY KEY (table_id, app_id, version)
){strict};
CREATE INDEX dl_txn_actions_version ON dl_txn_actions (table_id, version);

CREATE TABLE dl_domain_metadata (
  table_id {bigint} NOT NULL,
  domain {text} NOT NULL,
  version {bigint} NOT NULL,
  configuration {text} NOT NULL,
  removed {bool} NOT NULL,
  extra {text},
  PRIMARY KEY (table_id, domain, version)
){strict};
CREATE INDEX dl_domain_metadata_version ON dl_domain_metadata (table_id, version);

CREATE TABLE dl_cdc_files (
  table_id {bigint} NOT NULL,
  version {bigint} NOT NULL,
  ordinal {bigint} NOT NULL,
  path {text} NOT NULL,
  partition_values {text} NOT NULL,
  size {bigint} NOT NULL,
  data_change {bool} NOT NULL,
  tags {text},
  extra {text},
  PRIMARY KEY (table_id, version, ordinal)
){strict};

CREATE TABLE dl_mirror_status (
  table_id {bigint} NOT NULL,
  version {bigint} NOT NULL,
  target {text} NOT NULL,
  status {text} NOT NULL,
  attempts {bigint} NOT NULL,
  last_error {text},
  updated_at_ms {bigint} NOT NULL,
  PRIMARY KEY (table_id, target, version)
){strict};

CREATE TABLE dl_staged_files (
  txn_id {text} NOT NULL,
  table_id {bigint} NOT NULL,
  path {text} NOT NULL,
  staged_at_ms {bigint} NOT NULL,
  PRIMARY KEY (txn_id, table_id, path)
){strict};
