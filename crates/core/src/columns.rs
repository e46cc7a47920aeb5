//! The Arrow columns of a list of files, read from any string or integer type of a database.
use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Int64Builder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, LargeStringArray, RecordBatch, StringArray, StringViewArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::actions::{AddFile, StringMap};
use crate::error::Error;
use crate::object_writer::ObjectWriter;

/// The columns that a list of files may have. Only `path` is required. Unknown columns are passed
/// through.
const COLUMNS: [(&str, DataType); 13] = [
    ("path", DataType::Utf8),
    ("partition", DataType::Utf8),
    ("size", DataType::Int64),
    ("modification_time", DataType::Int64),
    ("data_change", DataType::Boolean),
    ("stats", DataType::Utf8),
    ("num_records", DataType::Int64),
    ("tags", DataType::Utf8),
    ("deletion_vector", DataType::Utf8),
    ("base_row_id", DataType::Int64),
    ("default_row_commit_version", DataType::Int64),
    ("clustering_provider", DataType::Utf8),
    ("extra", DataType::Utf8),
];

/// Return the schema with every known column in a type that this module reads.
pub fn readable_schema(schema: &Schema) -> Result<SchemaRef, Error> {
    if schema.column_with_name("path").is_none() {
        let names: Vec<_> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        return Err(Error::Files(format!(
            "no column `path` among [{}]",
            names.join(", ")
        )));
    }
    let fields = schema.fields().iter().map(|field| {
        let known = COLUMNS.iter().find(|(name, _)| name == field.name());
        match known {
            Some((_, wanted)) if !reads_as(field.data_type(), wanted) => {
                Field::new(field.name(), wanted.clone(), true)
            }
            _ => field.as_ref().clone(),
        }
    });
    Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}

/// Cast the columns whose type differs from the schema; the others are shared, not copied.
pub fn readable_batch(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, Error> {
    let columns = batch.columns().iter().zip(schema.fields());
    let cast = columns.map(|(column, field)| {
        if column.data_type() == field.data_type() {
            return Ok(Arc::clone(column));
        }
        arrow_cast::cast(column, field.data_type()).map_err(files_error)
    });
    let columns = cast.collect::<Result<Vec<ArrayRef>, _>>()?;
    RecordBatch::try_new(Arc::clone(schema), columns).map_err(files_error)
}

/// A string column of any Arrow string type.
pub enum Texts<'a> {
    Small(&'a StringArray),
    Large(&'a LargeStringArray),
    View(&'a StringViewArray),
    Missing,
}

impl<'a> Texts<'a> {
    pub fn of(batch: &'a RecordBatch, name: &str) -> Self {
        let Some(column) = batch.column_by_name(name) else {
            return Self::Missing;
        };
        match column.data_type() {
            DataType::Utf8 => Self::Small(column.as_string()),
            DataType::LargeUtf8 => Self::Large(column.as_string()),
            DataType::Utf8View => Self::View(column.as_string_view()),
            _ => Self::Missing,
        }
    }

    /// Return the string of a row. An empty string means NULL, because some columns are NOT NULL.
    pub fn get(&self, row: usize) -> Option<&'a str> {
        let value = match self {
            Self::Small(texts) => texts.is_valid(row).then(|| texts.value(row)),
            Self::Large(texts) => texts.is_valid(row).then(|| texts.value(row)),
            Self::View(texts) => texts.is_valid(row).then(|| texts.value(row)),
            Self::Missing => None,
        };
        value.filter(|text| !text.is_empty())
    }
}

pub fn long(batch: &RecordBatch, name: &str, row: usize) -> Option<i64> {
    let column = batch.column_by_name(name)?;
    (!column.is_null(row)).then(|| column.as_primitive::<Int64Type>().value(row))
}

pub fn boolean(batch: &RecordBatch, name: &str, row: usize) -> Option<bool> {
    let column = batch.column_by_name(name)?;
    (!column.is_null(row)).then(|| column.as_boolean().value(row))
}

/// Return one batch with all files, with the columns of `COLUMNS`.
pub fn batch_of(
    files: &[Arc<AddFile>],
    partition_columns: &[String],
) -> Result<RecordBatch, Error> {
    let texts = |get: &dyn Fn(&AddFile) -> Option<String>| -> ArrayRef {
        let mut builder = StringBuilder::new();
        files.iter().for_each(|f| builder.append_option(get(f)));
        Arc::new(builder.finish())
    };
    let longs = |get: &dyn Fn(&AddFile) -> Option<i64>| -> ArrayRef {
        let mut builder = Int64Builder::with_capacity(files.len());
        files.iter().for_each(|f| builder.append_option(get(f)));
        Arc::new(builder.finish())
    };
    let mut data_change = BooleanBuilder::with_capacity(files.len());
    files
        .iter()
        .for_each(|f| data_change.append_value(f.data_change));
    let columns: Vec<ArrayRef> = vec![
        texts(&|f| Some(f.path.clone())),
        texts(&|f| Some(partition_text(&f.partition_values, partition_columns))),
        longs(&|f| Some(f.size)),
        longs(&|f| Some(f.modification_time)),
        Arc::new(data_change.finish()),
        texts(&|f| f.stats.clone()),
        longs(&|f| crate::stats::num_records(f.stats.as_deref())),
        texts(&|f| f.tags.as_ref().map(json_text)),
        texts(&|f| f.deletion_vector.as_ref().map(json_text)),
        longs(&|f| f.base_row_id),
        longs(&|f| f.default_row_commit_version),
        texts(&|f| f.clustering_provider.clone()),
        texts(&|f| (!f.extra.is_empty()).then(|| json_text(&f.extra))),
    ];
    RecordBatch::try_new(file_schema(), columns).map_err(files_error)
}

/// Return the schema of `batch_of`.
pub fn file_schema() -> SchemaRef {
    let fields = COLUMNS.iter().map(|(name, data_type)| {
        let required = matches!(
            *name,
            "path" | "partition" | "size" | "modification_time" | "data_change"
        );
        Field::new(*name, data_type.clone(), !required)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Return partition values as canonical JSON: the partition columns in order, then all others.
pub fn partition_text(values: &StringMap, partition_columns: &[String]) -> String {
    let mut out = ObjectWriter::default();
    for column in partition_columns {
        out.entry(column, values.get(column).and_then(Option::as_deref));
    }
    for (column, value) in values {
        if !partition_columns.contains(column) {
            out.entry(column, value.as_deref());
        }
    }
    out.finish()
}

pub fn files_error(error: impl std::fmt::Display) -> Error {
    Error::Files(error.to_string())
}

/// Return compact JSON. This cannot fail, because the keys of `value` are strings.
pub fn json_text(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn reads_as(found: &DataType, wanted: &DataType) -> bool {
    match wanted {
        DataType::Utf8 => matches!(
            found,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
        ),
        _ => found == wanted,
    }
}
