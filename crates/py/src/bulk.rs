//! Convert many database rows to Arrow in chunks; the column types are taken from the values.
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, Float64Builder, Int64Builder, StringBuilder};
use arrow_array::{new_null_array, Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Fields, Schema};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::stream::{arrow_error, stream_capsule};

/// The number of rows of one chunk. The allocator reuses the memory of a chunk's buffers for the
/// next chunk.
const CHUNK_ROWS: usize = 16_384;

/// Collects rows of int, str, bytes, float or None; a column has one type in all rows.
#[pyclass(module = "deltasql._core")]
pub struct ArrowRows {
    names: Vec<String>,
    kinds: Vec<Option<DataType>>,
    growing: Vec<Column>,
    rows: usize,
    chunks: Vec<Vec<ArrayRef>>,
}

#[pymethods]
impl ArrowRows {
    #[new]
    fn new(names: Vec<String>) -> Self {
        Self::with_names(names)
    }

    /// Append rows.
    fn append(&mut self, rows: &Bound<'_, PyList>) -> PyResult<()> {
        for row in rows.iter() {
            let row = row.cast::<PyTuple>()?;
            if row.len() != self.growing.len() {
                return Err(PyValueError::new_err(format!(
                    "a row of {} values for {} columns",
                    row.len(),
                    self.growing.len()
                )));
            }
            for (column, value) in self.growing.iter_mut().zip(row.iter()) {
                column.push(Value::of(&value)?)?;
            }
            self.end_row()?;
        }
        Ok(())
    }
    /// Return all rows; a column in which every value is null has the type int64.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &mut self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        self.finish_chunk()?;
        let kinds = self.kinds.iter();
        let kinds = kinds.map(|kind| kind.clone().unwrap_or(DataType::Int64));
        let fields = self.names.iter().zip(kinds);
        let fields: Fields = fields
            .map(|(name, kind)| Field::new(name, kind, true))
            .collect();
        let schema = Arc::new(Schema::new(fields));
        let mut batches = Vec::with_capacity(self.chunks.len());
        for chunk in &self.chunks {
            let columns = chunk.iter().zip(schema.fields()).map(|(array, field)| {
                if array.data_type() == &DataType::Null {
                    new_null_array(field.data_type(), array.len())
                } else {
                    Arc::clone(array)
                }
            });
            let batch = RecordBatch::try_new(Arc::clone(&schema), columns.collect());
            batches.push(batch.map_err(arrow_error)?);
        }
        stream_capsule(py, schema, batches)
    }
}

impl ArrowRows {
    pub fn with_names(names: Vec<String>) -> Self {
        let kinds = vec![None; names.len()];
        let growing = names.iter().map(|_| Column::Nulls(0)).collect();
        Self {
            names,
            kinds,
            growing,
            rows: 0,
            chunks: Vec::new(),
        }
    }

    /// Append one row; `value` returns the value for a column number.
    pub fn push_row<'a>(&mut self, value: impl Fn(usize) -> PyResult<Value<'a>>) -> PyResult<()> {
        for (number, column) in self.growing.iter_mut().enumerate() {
            column.push(value(number)?)?;
        }
        self.end_row()
    }

    fn end_row(&mut self) -> PyResult<()> {
        self.rows += 1;
        if self.rows == CHUNK_ROWS {
            self.finish_chunk()?;
        }
        Ok(())
    }

    fn finish_chunk(&mut self) -> PyResult<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut chunk = Vec::with_capacity(self.names.len());
        for number in 0..self.growing.len() {
            let column = std::mem::replace(&mut self.growing[number], Column::Nulls(0));
            let array = column.finish();
            self.check_kind(number, array.data_type())?;
            chunk.push(array);
        }
        self.chunks.push(chunk);
        self.rows = 0;
        Ok(())
    }

    fn check_kind(&mut self, number: usize, found: &DataType) -> PyResult<()> {
        if found == &DataType::Null {
            return Ok(());
        }
        let known = self.kinds[number].get_or_insert_with(|| found.clone());
        if known == found {
            return Ok(());
        }
        Err(PyValueError::new_err(format!(
            "column `{}` has values of two kinds: {known} and {found}",
            self.names[number]
        )))
    }
}

/// A value of a database row.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    Null,
    Long(i64),
    Real(f64),
    Text(&'a str),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    fn of(value: &'a Bound<'_, PyAny>) -> PyResult<Self> {
        if value.is_none() {
            Ok(Self::Null)
        } else if let Ok(text) = value.cast::<PyString>() {
            Ok(Self::Text(text.to_str()?))
        } else if value.is_instance_of::<PyInt>() {
            Ok(Self::Long(value.extract()?))
        } else if let Ok(bytes) = value.cast::<PyBytes>() {
            Ok(Self::Bytes(bytes.as_bytes()))
        } else if value.is_instance_of::<PyFloat>() {
            Ok(Self::Real(value.extract()?))
        } else {
            let kind = value.get_type().name()?;
            Err(PyValueError::new_err(format!(
                "no database value is a `{kind}`; known: int, str, bytes, float, None"
            )))
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Null => "Null",
            Self::Long(_) => "Int64",
            Self::Real(_) => "Float64",
            Self::Text(_) => "Utf8",
            Self::Bytes(_) => "Binary",
        }
    }
}

enum Column {
    Nulls(usize),
    Long(Int64Builder),
    Real(Float64Builder),
    Text(StringBuilder),
    Bytes(BinaryBuilder),
}

impl Column {
    fn push(&mut self, value: Value<'_>) -> PyResult<()> {
        if let Self::Nulls(count) = self {
            *self = Self::of(value, *count);
        }
        match (self, value) {
            (Self::Nulls(count), _) => *count += 1,
            (Self::Long(builder), Value::Null) => builder.append_null(),
            (Self::Real(builder), Value::Null) => builder.append_null(),
            (Self::Text(builder), Value::Null) => builder.append_null(),
            (Self::Bytes(builder), Value::Null) => builder.append_null(),
            (Self::Long(builder), Value::Long(value)) => builder.append_value(value),
            (Self::Real(builder), Value::Real(value)) => builder.append_value(value),
            (Self::Text(builder), Value::Text(value)) => builder.append_value(value),
            (Self::Bytes(builder), Value::Bytes(value)) => builder.append_value(value),
            (_, value) => {
                return Err(PyValueError::new_err(format!(
                    "a column has values of two kinds, one of them {}",
                    value.kind()
                )))
            }
        }
        Ok(())
    }

    /// Create a column for its first non-null value, after `nulls` nulls.
    fn of(value: Value<'_>, nulls: usize) -> Self {
        match value {
            Value::Null => Self::Nulls(nulls),
            Value::Long(_) => {
                let mut builder = Int64Builder::new();
                builder.append_nulls(nulls);
                Self::Long(builder)
            }
            Value::Real(_) => {
                let mut builder = Float64Builder::new();
                builder.append_nulls(nulls);
                Self::Real(builder)
            }
            Value::Text(_) => {
                let mut builder = StringBuilder::new();
                (0..nulls).for_each(|_| builder.append_null());
                Self::Text(builder)
            }
            Value::Bytes(_) => {
                let mut builder = BinaryBuilder::new();
                (0..nulls).for_each(|_| builder.append_null());
                Self::Bytes(builder)
            }
        }
    }

    fn finish(self) -> ArrayRef {
        match self {
            Self::Nulls(count) => new_null_array(&DataType::Null, count),
            Self::Long(mut builder) => Arc::new(builder.finish()),
            Self::Real(mut builder) => Arc::new(builder.finish()),
            Self::Text(mut builder) => Arc::new(builder.finish()),
            Self::Bytes(mut builder) => Arc::new(builder.finish()),
        }
    }
}
