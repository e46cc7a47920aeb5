//! Python bindings of `deltasql-core`.
mod errors;
mod index;
mod json;

use pyo3::prelude::*;

#[pymodule]
fn _core(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add_class::<index::IndexedFiles>()?;
    m.add_function(wrap_pyfunction!(index::encode_key, m)?)?;
    m.add_function(wrap_pyfunction!(index::key_bounds, m)?)?;
    m.add_function(wrap_pyfunction!(index::path_key, m)?)?;
    m.add_function(wrap_pyfunction!(index::index_files, m)?)?;
    Ok(())
}
