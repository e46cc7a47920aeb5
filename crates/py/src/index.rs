//! `index_files`: the rows of one commit's files, ready for the store.
use deltasql_core::index::{lay_out, FileInput, IndexColumn, Layout, StatsRow};
use deltasql_core::keys::{path_key as hash_path, KeyType};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use crate::adds::{Partitions, Row};

/// The rows of a commit's files and of the skipping index over them.
#[pyclass(frozen, module = "deltasql._core")]
pub struct IndexedFiles {
    #[pyo3(get)]
    files: Py<PyList>,
    #[pyo3(get)]
    stats: Py<PyList>,
    #[pyo3(get)]
    partitions: Py<PyList>,
}

#[pymethods]
impl IndexedFiles {
    fn __len__(&self, py: Python<'_>) -> usize {
        self.files.bind(py).len()
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!(
            "IndexedFiles(files={}, stats={}, partitions={})",
            self.files.bind(py).len(),
            self.stats.bind(py).len(),
            self.partitions.bind(py).len()
        )
    }
}

/// The order-preserving key of a value, or None when the text is no exact value of the type.
#[pyfunction]
pub fn encode_key<'py>(
    py: Python<'py>,
    delta_type: &str,
    text: &str,
) -> Option<Bound<'py, PyBytes>> {
    let key = KeyType::of(delta_type)?.encode(text)?;
    Some(PyBytes::new(py, &key))
}

/// The keys between which a literal surely lies, or None when it cannot be ordered.
#[pyfunction]
pub fn key_bounds<'py>(
    py: Python<'py>,
    delta_type: &str,
    text: &str,
) -> Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let bounds = KeyType::of(delta_type)?.literal(text)?;
    Some((
        PyBytes::new(py, &bounds.low),
        PyBytes::new(py, &bounds.high),
    ))
}

/// The short name of a logical file.
#[pyfunction]
#[pyo3(signature = (path, dv_unique_id=None))]
pub fn path_key<'py>(
    py: Python<'py>,
    path: &str,
    dv_unique_id: Option<&str>,
) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &hash_path(path, dv_unique_id))
}

/// Order the files of a commit, number them and summarise their statistics.
#[pyfunction]
#[pyo3(signature = (adds, columns, partition_columns, first_file_id, range_size=256))]
pub fn index_files<'py>(
    py: Python<'py>,
    adds: &Bound<'py, PyAny>,
    columns: Vec<(i64, Vec<String>, String)>,
    partition_columns: Vec<Bound<'py, PyString>>,
    first_file_id: i64,
    range_size: usize,
) -> PyResult<IndexedFiles> {
    let columns: Vec<IndexColumn> = columns
        .into_iter()
        .map(|(id, path, delta_type)| IndexColumn {
            id,
            path,
            key_type: KeyType::of(&delta_type),
        })
        .collect();
    let mut partitions = Partitions::new(partition_columns)?;
    let mut rows = Vec::with_capacity(adds.len().unwrap_or_default());
    for add in adds.try_iter()? {
        rows.push(Row::of(&add?, &mut partitions)?);
    }
    let mut files = Vec::with_capacity(rows.len());
    let mut names = Vec::with_capacity(rows.len());
    for row in &rows {
        let stats = row.stats.as_ref().map(|text| text.to_str()).transpose()?;
        files.push(FileInput {
            partition: row.partition,
            stats,
        });
        names.push((row.path.to_str()?, row.dv_id.as_deref()));
    }
    let texts = &partitions.texts;
    let (layout, path_keys) = if rows.len() <= 1 {
        lay_out_all(&files, &names, texts, &columns, first_file_id, range_size)
    } else {
        py.detach(|| lay_out_all(&files, &names, texts, &columns, first_file_id, range_size))
    };
    build(py, &rows, &partitions, &layout, &path_keys, first_file_id)
}

fn lay_out_all(
    files: &[FileInput<'_>],
    names: &[(&str, Option<&str>)],
    partitions: &[String],
    columns: &[IndexColumn],
    first_file_id: i64,
    range_size: usize,
) -> (Layout, Vec<[u8; 16]>) {
    let layout = lay_out(files, partitions, columns, first_file_id, range_size);
    let keys = names.iter().map(|(path, dv)| hash_path(path, *dv));
    (layout, keys.collect())
}

fn build(
    py: Python<'_>,
    rows: &[Row<'_>],
    partitions: &Partitions<'_>,
    layout: &Layout,
    path_keys: &[[u8; 16]],
    first_file_id: i64,
) -> PyResult<IndexedFiles> {
    let texts: Vec<_> = partitions
        .texts
        .iter()
        .map(|text| PyString::new(py, text).into_any())
        .collect();
    let mut files = Vec::with_capacity(rows.len());
    for (file_id, &position) in (first_file_id..).zip(&layout.order) {
        let row = &rows[position];
        let [size, modification_time, data_change, base_row_id, row_version, clustering] =
            row.plain.clone();
        files.push(PyTuple::new(
            py,
            [
                file_id.into_pyobject(py)?.into_any(),
                row.path.clone().into_any(),
                PyBytes::new(py, &path_keys[position]).into_any(),
                texts[row.partition].clone(),
                size,
                modification_time,
                data_change,
                row.stats.clone().into_pyobject(py)?.into_any(),
                layout.num_records[position].into_pyobject(py)?,
                row.tags.as_deref().into_pyobject(py)?,
                row.deletion_vector.as_deref().into_pyobject(py)?,
                base_row_id,
                row_version,
                clustering,
                row.extra.as_deref().into_pyobject(py)?,
            ],
        )?);
    }
    let stats: PyResult<Vec<_>> = layout.rows.iter().map(|row| stats_tuple(py, row)).collect();
    Ok(IndexedFiles {
        files: PyList::new(py, files)?.unbind(),
        stats: PyList::new(py, stats?)?.unbind(),
        partitions: PyList::new(py, texts)?.unbind(),
    })
}

fn stats_tuple<'py>(py: Python<'py>, row: &StatsRow) -> PyResult<Bound<'py, PyTuple>> {
    let bytes = |key: &Option<Vec<u8>>| key.as_ref().map(|key| PyBytes::new(py, key));
    (
        row.column_id,
        row.first_file_id,
        row.last_file_id,
        bytes(&row.min_key),
        bytes(&row.max_key),
        row.null_count,
        row.num_records,
    )
        .into_pyobject(py)
}
