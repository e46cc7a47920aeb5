//! Exchange Arrow streams with Python: the capsules of `__arrow_c_stream__`.
use std::ffi::CStr;

use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{RecordBatch, RecordBatchIterator};
use arrow_schema::{ArrowError, SchemaRef};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

const NAME: &CStr = c"arrow_array_stream";

/// Return a reader for an object with `__arrow_c_stream__`.
pub fn read_stream(object: &Bound<'_, PyAny>) -> PyResult<ArrowArrayStreamReader> {
    if !object.hasattr("__arrow_c_stream__")? {
        return Err(PyValueError::new_err(
            "the object has no __arrow_c_stream__",
        ));
    }
    let capsule = object.call_method0("__arrow_c_stream__")?;
    let stream = capsule.cast::<PyCapsule>()?.pointer_checked(Some(NAME))?;
    // SAFETY: a capsule with this name points to a stream. The reader moves it out and leaves a
    // released stream, so the capsule's destructor does not release it again.
    unsafe { ArrowArrayStreamReader::from_raw(stream.cast().as_ptr()) }.map_err(arrow_error)
}

/// Return batches as a stream; a consumer that requested another schema must cast them.
pub fn stream_capsule(
    py: Python<'_>,
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
) -> PyResult<Bound<'_, PyCapsule>> {
    let reader = RecordBatchIterator::new(batches.into_iter().map(Ok), schema);
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), NAME)
}

pub fn arrow_error(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}
