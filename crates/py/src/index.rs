//! `index_files`: the rows that the store inserts for the files of one commit.
use deltasql_core::file_bounds;
use deltasql_core::index::{lay_out, FileInput, IndexColumn, Layout, StatsRow, PARALLEL_FROM};
use deltasql_core::keys::{
    canonical_path as one_spelling, older_path_keys as older_keys, path_key as hash_path, KeyType,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyString, PyTuple};

use crate::adds::{Partitions, Row};
use crate::copy::CopyRows;
use crate::file_row::{FileRow, COLUMNS, DATA_CHANGE, KEY, NULLABLE};

/// The rows of a commit's files and of their data skipping index.
#[pyclass(frozen, module = "deltasql._core")]
pub struct IndexedFiles {
    files: Vec<FileRow>,
    #[pyo3(get)]
    stats: Py<PyList>,
    #[pyo3(get)]
    partitions: Py<PyList>,
}

#[pymethods]
impl IndexedFiles {
    /// The rows of the files, with the partition values as JSON.
    #[getter]
    fn files<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let partitions = self.partitions.bind(py);
        let mut rows = Vec::with_capacity(self.files.len());
        for file in &self.files {
            rows.push(PyTuple::new(
                py,
                file.values(py, partitions.get_item(file.partition)?)?,
            )?);
        }
        PyList::new(py, rows)
    }

    /// Return the keys of the files.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(
            py,
            self.files.iter().map(|file| PyBytes::new(py, &file.key)),
        )
    }

    /// Return the positions of the columns of `dl_add_files` with a value in at least one row.
    fn filled_columns(&self, py: Python<'_>) -> Vec<usize> {
        let mut filled = [true; COLUMNS];
        for (column, of) in NULLABLE {
            filled[column] = self.files.iter().any(|file| of(file, py));
        }
        (0..COLUMNS).filter(|&column| filled[column]).collect()
    }

    /// Return the rows of `dl_add_files`; `partition_ids` has an id for each of `partitions`.
    fn rows<'py>(
        &self,
        py: Python<'py>,
        table_id: i64,
        partition_ids: Vec<Bound<'py, PyAny>>,
        version: i64,
    ) -> PyResult<Bound<'py, PyList>> {
        self.each_row(py, table_id, &partition_ids, version, |_, row| {
            PyTuple::new(py, row)
        })
    }

    /// Return some columns of the rows, in types that SQLite's driver accepts without adapters.
    fn plain_rows<'py>(
        &self,
        py: Python<'py>,
        table_id: i64,
        partition_ids: Vec<Bound<'py, PyAny>>,
        version: i64,
        columns: Vec<usize>,
    ) -> PyResult<Bound<'py, PyList>> {
        self.each_row(py, table_id, &partition_ids, version, |file, row| {
            let chosen: PyResult<Vec<_>> = columns
                .iter()
                .map(|&column| match column {
                    KEY => Ok(PyByteArray::new(py, &file.key).into_any()),
                    DATA_CHANGE => Ok(i64::from(row[column].is_truthy()?)
                        .into_pyobject(py)?
                        .into_any()),
                    _ => {
                        let value = row.get(column).cloned();
                        value.ok_or_else(|| PyValueError::new_err("no such column"))
                    }
                })
                .collect();
            PyTuple::new(py, chosen?)
        })
    }

    /// Return the rows in the binary format of PostgreSQL's COPY, in pieces.
    fn copy_rows<'py>(
        &self,
        py: Python<'py>,
        table_id: i64,
        partition_ids: Vec<Bound<'py, PyAny>>,
        version: i64,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let ids: Vec<i64> = partition_ids
            .iter()
            .map(|id| id.extract())
            .collect::<PyResult<_>>()?;
        let mut pieces = Vec::new();
        let mut copy = CopyRows::start();
        for file in &self.files {
            let id = *ids.get(file.partition).ok_or_else(too_few_ids)?;
            file.copy(py, &mut copy, table_id, id, version)?;
            if copy.is_full() {
                pieces.push(PyBytes::new(py, copy.bytes()));
                copy.clear();
            }
        }
        copy.end();
        pieces.push(PyBytes::new(py, copy.bytes()));
        Ok(pieces)
    }

    fn __len__(&self) -> usize {
        self.files.len()
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!(
            "IndexedFiles(files={}, stats={}, partitions={})",
            self.files.len(),
            self.stats.bind(py).len(),
            self.partitions.bind(py).len()
        )
    }
}

impl IndexedFiles {
    /// Return a tuple for each file; `made` creates it from the file's row of `dl_add_files`.
    fn each_row<'py>(
        &self,
        py: Python<'py>,
        table_id: i64,
        partition_ids: &[Bound<'py, PyAny>],
        version: i64,
        made: impl Fn(&FileRow, [Bound<'py, PyAny>; COLUMNS]) -> PyResult<Bound<'py, PyTuple>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let table_id = table_id.into_pyobject(py)?.into_any();
        let version = version.into_pyobject(py)?.into_any();
        let mut rows = Vec::with_capacity(self.files.len());
        for file in &self.files {
            let partition_id = partition_ids.get(file.partition).ok_or_else(too_few_ids)?;
            let [first, path, key, partition, size, time, change, stats, records, rest @ ..] =
                file.values(py, partition_id.clone())?;
            let [tags, dv, base, row_version, clustering, extra] = rest;
            let row = [
                table_id.clone(),
                first,
                path,
                key,
                partition,
                size,
                time,
                change,
                stats,
                records,
                tags,
                dv,
                base,
                row_version,
                clustering,
                extra,
                version.clone(),
            ];
            rows.push(made(file, row)?);
        }
        PyList::new(py, rows)
    }
}

fn too_few_ids() -> PyErr {
    PyValueError::new_err("every partition needs an id")
}

/// Return the order-preserving key of a value; None if the string is not an exact value of the
/// type.
#[pyfunction]
pub fn encode_key<'py>(
    py: Python<'py>,
    delta_type: &str,
    text: &str,
) -> Option<Bound<'py, PyBytes>> {
    let key = KeyType::of(delta_type)?.encode(text)?;
    Some(PyBytes::new(py, &key))
}

/// Return a lower and an upper key for a literal; None if its type has no order.
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

/// Return the files that may have a value from `low` to `high`, as merged ranges of ids.
///
/// The rows of the data skipping index are (first file id, last file id, bounds of each file).
#[pyfunction]
pub fn files_between(
    rows: Vec<(i64, i64, Option<PyBackedBytes>)>,
    low: &[u8],
    high: &[u8],
) -> Vec<(i64, i64)> {
    let mut found = Vec::new();
    for (first, last, packed) in &rows {
        file_bounds::find(packed.as_deref(), (*first, *last), low, high, &mut found);
    }
    found
}

/// Return the key of a logical file: a hash of its path and deletion vector id.
#[pyfunction]
#[pyo3(signature = (path, dv_unique_id=None))]
pub fn path_key<'py>(
    py: Python<'py>,
    path: &str,
    dv_unique_id: Option<&str>,
) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &hash_path(path, dv_unique_id))
}

/// Return the keys that earlier releases used for a file with an absolute local path.
#[pyfunction]
#[pyo3(signature = (path, dv_unique_id=None))]
pub fn older_path_keys<'py>(
    py: Python<'py>,
    path: &str,
    dv_unique_id: Option<&str>,
) -> Vec<Bound<'py, PyBytes>> {
    let keys = older_keys(path, dv_unique_id).into_iter();
    keys.map(|key| PyBytes::new(py, &key)).collect()
}

/// Return the canonical form of a path.
#[pyfunction]
pub fn canonical_path(path: &str) -> String {
    one_spelling(path).into_owned()
}

/// Order the files of a commit, assign their ids and compute their data skipping index.
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
    let (layout, keys) = if rows.len() <= 1 {
        lay_out_all(&files, &names, texts, &columns, first_file_id, range_size)
    } else {
        py.detach(|| lay_out_all(&files, &names, texts, &columns, first_file_id, range_size))
    };
    let mut rows: Vec<Option<Row<'_>>> = rows.into_iter().map(Some).collect();
    let ordered = (first_file_id..).zip(&layout.order);
    let files = ordered.filter_map(|(file_id, &at)| {
        let row = rows[at].take()?;
        Some(FileRow {
            file_id,
            path: row.path.unbind(),
            key: keys[at],
            partition: row.partition,
            stats: row.stats.map(Bound::unbind),
            num_records: layout.num_records[at],
            plain: row.plain.map(Bound::unbind),
            tags: row.tags,
            deletion_vector: row.deletion_vector,
            extra: row.extra,
        })
    });
    let files = files.collect();
    let stats: PyResult<Vec<_>> = layout.rows.iter().map(|row| stats_tuple(py, row)).collect();
    Ok(IndexedFiles {
        files,
        stats: PyList::new(py, stats?)?.unbind(),
        partitions: PyList::new(py, texts)?.unbind(),
    })
}

fn lay_out_all(
    files: &[FileInput<'_>],
    names: &[(&str, Option<&str>)],
    partitions: &[String],
    columns: &[IndexColumn],
    first_file_id: i64,
    range_size: usize,
) -> (Layout, Vec<[u8; 16]>) {
    let hash = || {
        names
            .iter()
            .map(|(path, dv)| hash_path(path, *dv))
            .collect()
    };
    if files.len() < PARALLEL_FROM {
        let layout = lay_out(files, partitions, columns, first_file_id, range_size);
        return (layout, hash());
    }
    std::thread::scope(|scope| {
        let keys = scope.spawn(hash);
        let layout = lay_out(files, partitions, columns, first_file_id, range_size);
        (layout, keys.join().unwrap_or_else(|_| hash()))
    })
}

fn stats_tuple<'py>(py: Python<'py>, row: &StatsRow) -> PyResult<Bound<'py, PyTuple>> {
    let bytes = |value: &Option<Vec<u8>>| value.as_ref().map(|bytes| PyBytes::new(py, bytes));
    (
        row.column_id,
        row.first_file_id,
        row.last_file_id,
        bytes(&row.min_key),
        bytes(&row.max_key),
        row.null_count,
        row.num_records,
        bytes(&row.file_bounds),
    )
        .into_pyobject(py)
}
