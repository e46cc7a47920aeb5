//! Python bindings of `deltasql-core`.
mod actions;
mod adds;
mod bulk;
mod commit;
mod copy;
mod errors;
mod file_row;
mod files;
mod index;
mod json;
mod live;
mod load;
mod log_rows;
mod predicate;
mod row_set;
mod rows;
mod sqlite;
mod stream;
mod table;

use mimalloc::MiMalloc;
use pyo3::prelude::*;

// Parsing a log allocates very many short strings in one thread and frees them in another. With
// the system's allocator, this takes as long as the parsing itself.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[pymodule]
fn _core(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add_class::<bulk::ArrowRows>()?;
    m.add_class::<commit::Commit>()?;
    m.add_class::<files::File>()?;
    m.add_class::<files::FileIterator>()?;
    m.add_class::<files::FileList>()?;
    m.add_class::<index::IndexedFiles>()?;
    m.add_class::<live::LiveFiles>()?;
    m.add_class::<load::LogFiles>()?;
    m.add_class::<load::SeenFiles>()?;
    m.add_class::<log_rows::LogRows>()?;
    m.add_class::<predicate::Predicate>()?;
    m.add_class::<row_set::RowSet>()?;
    m.add_class::<sqlite::SqliteLibrary>()?;
    m.add_class::<table::Table>()?;
    m.add_function(wrap_pyfunction!(commit::encode_commit, m)?)?;
    m.add_function(wrap_pyfunction!(commit::nests_too_deep, m)?)?;
    m.add_function(wrap_pyfunction!(commit::parse_commit, m)?)?;
    m.add_function(wrap_pyfunction!(commit::parse_commits, m)?)?;
    m.add_function(wrap_pyfunction!(index::canonical_path, m)?)?;
    m.add_function(wrap_pyfunction!(index::encode_key, m)?)?;
    m.add_function(wrap_pyfunction!(index::files_between, m)?)?;
    m.add_function(wrap_pyfunction!(index::index_files, m)?)?;
    m.add_function(wrap_pyfunction!(index::key_bounds, m)?)?;
    m.add_function(wrap_pyfunction!(index::older_path_keys, m)?)?;
    m.add_function(wrap_pyfunction!(index::path_key, m)?)?;
    m.add_function(wrap_pyfunction!(row_set::with_wide_bounds, m)?)?;
    Ok(())
}
