//! Many rows of a database as Arrow, chunk by chunk, with kinds found from the values.
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, Float64Builder, Int64Builder, StringBuilder};
use arrow_array::{new_null_array, Array, ArrayRef, StructArray};
use arrow_schema::{DataType, Field, Fields};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyFloat, PyInt, PyList, PyString, PyTuple};
use pyo3_arrow::ffi::{to_stream_pycapsule, ArrayIterator};

/// Rows of one chunk: enough for readers, little while it grows.
const CHUNK_ROWS: usize = 65_536;

/// Collects rows of int, str, bytes, float or None; a column has one kind in all rows.
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

    /// Add rows.
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
                column.push(&value)?;
            }
            self.rows += 1;
            if self.rows == CHUNK_ROWS {
                self.finish_chunk()?;
            }
        }
        Ok(())
    }

    /// All chunks; a column without any value is one of integers.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &mut self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        self.finish_chunk()?;
        let kinds = self.kinds.iter();
        let kinds = kinds.map(|kind| kind.clone().unwrap_or(DataType::Int64));
        let fields = self.names.iter().zip(kinds);
        let fields: Fields = fields
            .map(|(name, kind)| Field::new(name, kind, true))
            .collect();
        let mut arrays = Vec::with_capacity(self.chunks.len());
        for chunk in &self.chunks {
            let columns = chunk.iter().zip(&fields).map(|(array, field)| {
                if array.data_type() == &DataType::Null {
                    new_null_array(field.data_type(), array.len())
                } else {
                    Arc::clone(array)
                }
            });
            let whole = StructArray::try_new(fields.clone(), columns.collect(), None)
                .map_err(|error| PyValueError::new_err(error.to_string()))?;
            arrays.push(Ok(Arc::new(whole) as ArrayRef));
        }
        let field = Field::new_struct("", fields, false);
        let reader = Box::new(ArrayIterator::new(arrays.into_iter(), Arc::new(field)));
        Ok(to_stream_pycapsule(py, reader, requested_schema)?)
    }
}

impl ArrowRows {
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

enum Column {
    Nulls(usize),
    Long(Int64Builder),
    Real(Float64Builder),
    Text(StringBuilder),
    Bytes(BinaryBuilder),
}

impl Column {
    fn push(&mut self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        if value.is_none() {
            match self {
                Self::Nulls(count) => *count += 1,
                Self::Long(builder) => builder.append_null(),
                Self::Real(builder) => builder.append_null(),
                Self::Text(builder) => builder.append_null(),
                Self::Bytes(builder) => builder.append_null(),
            }
            return Ok(());
        }
        if let Self::Nulls(count) = self {
            *self = Self::of(value, *count)?;
        }
        match self {
            Self::Nulls(_) => {}
            Self::Long(builder) => builder.append_value(value.extract()?),
            Self::Real(builder) => builder.append_value(value.extract()?),
            Self::Text(builder) => builder.append_value(value.cast::<PyString>()?.to_str()?),
            Self::Bytes(builder) => builder.append_value(value.cast::<PyBytes>()?.as_bytes()),
        }
        Ok(())
    }

    /// Start a column at its first value, after so many nulls.
    fn of(value: &Bound<'_, PyAny>, nulls: usize) -> PyResult<Self> {
        if value.is_instance_of::<PyInt>() {
            let mut builder = Int64Builder::new();
            builder.append_nulls(nulls);
            Ok(Self::Long(builder))
        } else if value.is_instance_of::<PyString>() {
            let mut builder = StringBuilder::new();
            (0..nulls).for_each(|_| builder.append_null());
            Ok(Self::Text(builder))
        } else if value.is_instance_of::<PyBytes>() {
            let mut builder = BinaryBuilder::new();
            (0..nulls).for_each(|_| builder.append_null());
            Ok(Self::Bytes(builder))
        } else if value.is_instance_of::<PyFloat>() {
            let mut builder = Float64Builder::new();
            builder.append_nulls(nulls);
            Ok(Self::Real(builder))
        } else {
            let kind = value.get_type().name()?;
            Err(PyValueError::new_err(format!(
                "no database value is a `{kind}`; known: int, str, bytes, float, None"
            )))
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
