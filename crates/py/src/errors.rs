//! Errors of the core as the package's own exception classes.
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// An action that cannot be written: `InvalidActionError`, with the Python error as its cause.
pub fn invalid_action(py: Python<'_>, message: &str, cause: Option<PyErr>) -> PyErr {
    let error = build(py, "InvalidActionError", message, None, None);
    error.set_cause(py, cause);
    error
}

/// A log that cannot be read: `LogParseError` with the line and the path.
pub fn log_parse(py: Python<'_>, message: &str, line: Option<usize>, path: Option<&str>) -> PyErr {
    build(py, "LogParseError", message, line, path)
}

fn build(
    py: Python<'_>,
    class: &str,
    message: &str,
    line: Option<usize>,
    path: Option<&str>,
) -> PyErr {
    let make = || -> PyResult<PyErr> {
        let kwargs = PyDict::new(py);
        if class == "LogParseError" {
            kwargs.set_item("line", line)?;
            kwargs.set_item("path", path)?;
        }
        let module = py.import("deltasql.exceptions")?;
        let error = module.getattr(class)?.call((message,), Some(&kwargs))?;
        Ok(PyErr::from_value(error))
    };
    make().unwrap_or_else(|error| error)
}
