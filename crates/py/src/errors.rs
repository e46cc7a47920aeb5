//! Convert errors of the core to the exception classes of `deltasql.exceptions`.
use deltasql_core::error::Error;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Return an `InvalidActionError` for an action that cannot be written.
pub fn invalid_action(py: Python<'_>, message: &str, cause: Option<PyErr>) -> PyErr {
    let error = build(py, "InvalidActionError", message, &PyDict::new(py));
    error.set_cause(py, cause);
    error
}

/// Return the exception for an error of the core; `path` is the log file that was parsed.
pub fn core_error(py: Python<'_>, error: &Error, path: Option<&str>) -> PyErr {
    let line = match error {
        Error::Line { line, .. } => Some(*line),
        Error::Version { .. } => None,
        Error::Predicate(_) | Error::Files(_) | Error::RowSet(_) => {
            return PyValueError::new_err(error.to_string())
        }
    };
    let fields = PyDict::new(py);
    let filled = fields
        .set_item("line", line)
        .and_then(|()| fields.set_item("path", path));
    match filled {
        Ok(()) => build(py, "LogParseError", &error.to_string(), &fields),
        Err(failed) => failed,
    }
}

// Imported on demand, because the exceptions module imports deltalake for its base classes.
fn build(py: Python<'_>, class: &str, message: &str, fields: &Bound<'_, PyDict>) -> PyErr {
    let make = || -> PyResult<PyErr> {
        let class = py.import("deltasql.exceptions")?.getattr(class)?;
        Ok(PyErr::from_value(class.call((message,), Some(fields))?))
    };
    make().unwrap_or_else(|error| error)
}
