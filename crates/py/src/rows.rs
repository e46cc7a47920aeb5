//! Convert a few database rows to one Arrow batch.
use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

/// Return rows as a batch; `columns` has names and types: int64, string or bool.
pub fn record_batch(
    rows: &Bound<'_, PyList>,
    columns: &[(String, String)],
) -> PyResult<RecordBatch> {
    let mut builders = Vec::with_capacity(columns.len());
    for (_, kind) in columns {
        builders.push(Column::of(kind, rows.len())?);
    }
    for row in rows.iter() {
        let row = row.cast::<PyTuple>()?;
        if row.len() != builders.len() {
            return Err(PyValueError::new_err(format!(
                "a row of {} values for {} columns",
                row.len(),
                builders.len()
            )));
        }
        for (builder, value) in builders.iter_mut().zip(row.iter()) {
            builder.push(&value)?;
        }
    }
    let fields = columns.iter().zip(&builders);
    let fields = fields.map(|((name, _), builder)| Field::new(name, builder.data_type(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let arrays = builders.iter_mut().map(Column::finish).collect();
    RecordBatch::try_new(schema, arrays).map_err(|error| PyValueError::new_err(error.to_string()))
}

enum Column {
    Long(Int64Builder),
    Text(StringBuilder),
    Boolean(BooleanBuilder),
}

impl Column {
    fn of(kind: &str, rows: usize) -> PyResult<Self> {
        match kind {
            "int64" => Ok(Self::Long(Int64Builder::with_capacity(rows))),
            "string" => Ok(Self::Text(StringBuilder::with_capacity(rows, rows * 64))),
            "bool" => Ok(Self::Boolean(BooleanBuilder::with_capacity(rows))),
            _ => Err(PyValueError::new_err(format!(
                "unknown kind `{kind}`; known: int64, string, bool"
            ))),
        }
    }

    fn push(&mut self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let null = value.is_none();
        match self {
            Self::Long(builder) if null => builder.append_null(),
            Self::Text(builder) if null => builder.append_null(),
            Self::Boolean(builder) if null => builder.append_null(),
            Self::Long(builder) => builder.append_value(value.extract()?),
            Self::Text(builder) => builder.append_value(value.cast::<PyString>()?.to_str()?),
            // SQLite has no booleans; it returns 0 and 1.
            Self::Boolean(builder) => builder.append_value(value.is_truthy()?),
        }
        Ok(())
    }

    fn data_type(&self) -> DataType {
        match self {
            Self::Long(_) => DataType::Int64,
            Self::Text(_) => DataType::Utf8,
            Self::Boolean(_) => DataType::Boolean,
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Long(builder) => Arc::new(builder.finish()),
            Self::Text(builder) => Arc::new(builder.finish()),
            Self::Boolean(builder) => Arc::new(builder.finish()),
        }
    }
}
