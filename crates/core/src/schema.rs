//! The table of all Delta actions and their fields.
//!
//! The JSON codec and the Python bindings are both generated from this table, so a field that is
//! added here is read and written everywhere. The order is the canonical order of the JSON keys
//! and the order of the fields of the Python dataclasses.

/// Call the macro `$callback` with the table of actions.
///
/// A field is `[required]`, `[optional]`, or `[or default]`.
#[macro_export]
macro_rules! for_each_action {
    ($callback:ident) => {
        $callback! {
            /// The deleted rows of a data file.
            DeletionVector {
                [required] storage_type: String = "storageType",
                [required] path_or_inline_dv: String = "pathOrInlineDv",
                [required] size_in_bytes: i64 = "sizeInBytes",
                [required] cardinality: i64 = "cardinality",
                [optional] offset: i64 = "offset",
            }
            /// A data file that is added to the table.
            AddFile {
                [required] path: String = "path",
                [required] partition_values: StringMap = "partitionValues",
                [required] size: i64 = "size",
                [required] modification_time: i64 = "modificationTime",
                [or true] data_change: bool = "dataChange",
                [optional] stats: String = "stats",
                [optional] tags: StringMap = "tags",
                [optional] deletion_vector: DeletionVector = "deletionVector",
                [optional] base_row_id: i64 = "baseRowId",
                [optional] default_row_commit_version: i64 = "defaultRowCommitVersion",
                [optional] clustering_provider: String = "clusteringProvider",
            }
            /// A data file that is removed from the table.
            RemoveFile {
                [required] path: String = "path",
                [optional] deletion_timestamp: i64 = "deletionTimestamp",
                [or true] data_change: bool = "dataChange",
                [optional] extended_file_metadata: bool = "extendedFileMetadata",
                [optional] partition_values: StringMap = "partitionValues",
                [optional] size: i64 = "size",
                [optional] stats: String = "stats",
                [optional] tags: StringMap = "tags",
                [optional] deletion_vector: DeletionVector = "deletionVector",
                [optional] base_row_id: i64 = "baseRowId",
                [optional] default_row_commit_version: i64 = "defaultRowCommitVersion",
            }
            /// A change data file of this version.
            AddCdcFile {
                [required] path: String = "path",
                [required] partition_values: StringMap = "partitionValues",
                [required] size: i64 = "size",
                [or false] data_change: bool = "dataChange",
                [optional] tags: StringMap = "tags",
            }
            /// The file format of a table, which is always Parquet.
            Format {
                [or "parquet".to_owned()] provider: String = "provider",
                [or StringMap::new()] options: StringMap = "options",
            }
            /// Schema, partitioning and properties of the table.
            Metadata {
                [required] id: String = "id",
                // Some tables are created without a schema and cannot be read until they have one.
                [or String::new()] schema_string: String = "schemaString",
                [or Vec::new()] partition_columns: StringList = "partitionColumns",
                [or StringMap::new()] configuration: StringMap = "configuration",
                [or Format::parquet()] format: Format = "format",
                [optional] name: String = "name",
                [optional] description: String = "description",
                [optional] created_time: i64 = "createdTime",
            }
            /// The protocol versions and table features that readers and writers must support.
            Protocol {
                [required] min_reader_version: i64 = "minReaderVersion",
                [required] min_writer_version: i64 = "minWriterVersion",
                [optional] reader_features: StringList = "readerFeatures",
                [optional] writer_features: StringList = "writerFeatures",
            }
            /// The last transaction version that an application committed.
            SetTransaction {
                [required] app_id: String = "appId",
                [required] version: i64 = "version",
                [optional] last_updated: i64 = "lastUpdated",
            }
            /// The configuration of one table feature or application.
            DomainMetadata {
                [required] domain: String = "domain",
                [required] configuration: String = "configuration",
                [or false] removed: bool = "removed",
            }
            /// Information about a commit. Writers may store any JSON here, so the fields have no
            /// fixed type.
            CommitInfo {
                [optional] timestamp: Value = "timestamp",
                [optional] in_commit_timestamp: Value = "inCommitTimestamp",
                [optional] operation: Value = "operation",
                [optional] operation_parameters: Value = "operationParameters",
                [optional] operation_metrics: Value = "operationMetrics",
                [optional] read_version: Value = "readVersion",
                [optional] isolation_level: Value = "isolationLevel",
                [optional] is_blind_append: Value = "isBlindAppend",
                [optional] engine_info: Value = "engineInfo",
                [optional] user_metadata: Value = "userMetadata",
                [optional] txn_id: Value = "txnId",
            }
            /// A sidecar file of a V2 checkpoint.
            Sidecar {
                [required] path: String = "path",
                [required] size_in_bytes: i64 = "sizeInBytes",
                [required] modification_time: i64 = "modificationTime",
                [optional] tags: StringMap = "tags",
            }
            /// The version of a V2 checkpoint.
            CheckpointMetadata {
                [required] version: i64 = "version",
                [optional] tags: StringMap = "tags",
            }
        }
    };
}

/// The Rust type of an action's field.
#[macro_export]
macro_rules! field_type {
    ([optional] $type:ty) => { Option<$type> };
    ([$($mode:tt)+] $type:ty) => { $type };
}

/// The value of a field that was read as an `Option`. If a required field is missing, it is
/// `$missing`.
#[macro_export]
macro_rules! field_value {
    ([optional] $read:expr, $missing:expr) => {
        $read
    };
    ([required] $read:expr, $missing:expr) => {
        match $read {
            Some(value) => value,
            None => return Err($missing),
        }
    };
    ([or $default:expr] $read:expr, $missing:expr) => {
        $read.unwrap_or_else(|| $default)
    };
}
