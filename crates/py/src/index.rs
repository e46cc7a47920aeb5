//! `index_files`: the rows of one commit's files, ready for the store.
use std::collections::HashMap;

use deltasql_core::index::{lay_out, FileInput, IndexColumn, Layout, StatsRow};
use deltasql_core::keys::{path_key as hash_path, KeyType};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use crate::errors::invalid_action;
use crate::json::{for_each_item, to_object};

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
    let mut partitions = Partitions::new(partition_columns);
    let mut rows = Vec::with_capacity(adds.len().unwrap_or_default());
    for add in adds.try_iter()? {
        rows.push(Row::extract(&add?, &mut partitions)?);
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

/// One `AddFile`, its Python values kept where the row needs them unchanged.
struct Row<'py> {
    path: Bound<'py, PyString>,
    partition: usize,
    stats: Option<Bound<'py, PyString>>,
    /// size, modification time, data change, base row id, default row commit version, clustering provider.
    plain: [Bound<'py, PyAny>; 6],
    tags: Option<String>,
    deletion_vector: Option<String>,
    dv_id: Option<String>,
    extra: Option<String>,
}

impl<'py> Row<'py> {
    fn extract(add: &Bound<'py, PyAny>, partitions: &mut Partitions<'py>) -> PyResult<Self> {
        Self::read(add, partitions).map_err(|error| {
            let name = add
                .repr()
                .map_or_else(|_| "?".into(), |text| text.to_string());
            invalid_action(
                add.py(),
                &format!("cannot index {name}: not a lawful add file"),
                Some(error),
            )
        })
    }

    fn read(add: &Bound<'py, PyAny>, partitions: &mut Partitions<'py>) -> PyResult<Self> {
        let py = add.py();
        let size = add.getattr(intern!(py, "size"))?;
        let modification_time = add.getattr(intern!(py, "modification_time"))?;
        size.extract::<i64>()?;
        modification_time.extract::<i64>()?;
        let deletion_vector = present(add.getattr(intern!(py, "deletion_vector"))?);
        Ok(Self {
            path: add.getattr(intern!(py, "path"))?.cast_into()?,
            partition: partitions.position(&add.getattr(intern!(py, "partition_values"))?)?,
            stats: present(add.getattr(intern!(py, "stats"))?)
                .map(|stats| stats.cast_into())
                .transpose()?,
            plain: [
                size,
                modification_time,
                add.getattr(intern!(py, "data_change"))?,
                add.getattr(intern!(py, "base_row_id"))?,
                add.getattr(intern!(py, "default_row_commit_version"))?,
                add.getattr(intern!(py, "clustering_provider"))?,
            ],
            tags: present(add.getattr(intern!(py, "tags"))?)
                .map(|tags| json_text(&tags))
                .transpose()?,
            dv_id: deletion_vector
                .as_ref()
                .map(|dv| dv.getattr(intern!(py, "unique_id"))?.extract())
                .transpose()?,
            deletion_vector: deletion_vector
                .map(|dv| json_text(&dv.call_method0(intern!(py, "body"))?))
                .transpose()?,
            extra: extra_text(&add.getattr(intern!(py, "extra"))?)?,
        })
    }
}

/// The distinct partitions of a commit, in order of first use.
struct Partitions<'py> {
    columns: Vec<Bound<'py, PyString>>,
    texts: Vec<String>,
    positions: HashMap<String, usize>,
}

impl<'py> Partitions<'py> {
    fn new(columns: Vec<Bound<'py, PyString>>) -> Self {
        Self {
            columns,
            texts: Vec::new(),
            positions: HashMap::new(),
        }
    }

    fn position(&mut self, values: &Bound<'py, PyAny>) -> PyResult<usize> {
        let text = self.text(values)?;
        // Files come partition by partition, so the last one is the best guess.
        if self.texts.last().is_some_and(|last| *last == text) {
            return Ok(self.texts.len() - 1);
        }
        if let Some(position) = self.positions.get(&text) {
            return Ok(*position);
        }
        self.texts.push(text.clone());
        self.positions.insert(text, self.texts.len() - 1);
        Ok(self.texts.len() - 1)
    }

    fn text(&self, values: &Bound<'py, PyAny>) -> PyResult<String> {
        let mut out = ObjectWriter::default();
        let count = values.len()?;
        let mut used = 0;
        for column in &self.columns {
            let value = match values.cast::<PyDict>() {
                Ok(dict) => dict.get_item(column)?,
                Err(_) if values.contains(column)? => Some(values.get_item(column)?),
                Err(_) => None,
            };
            used += usize::from(value.is_some());
            out.entry(column, value.as_ref())?;
        }
        if used < count {
            for_each_item(values, |key, value| {
                let name = key.to_str()?;
                let listed =
                    |column: &Bound<'_, PyString>| column.to_str().is_ok_and(|c| c == name);
                if !self.columns.iter().any(listed) {
                    out.entry(key, Some(value))?;
                }
                Ok(())
            })?;
        }
        Ok(out.finish())
    }
}

#[derive(Default)]
struct ObjectWriter {
    text: String,
}

impl ObjectWriter {
    fn entry(
        &mut self,
        key: &Bound<'_, PyString>,
        value: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.text.push(if self.text.is_empty() { '{' } else { ',' });
        self.text.push_str(&quoted(key.to_str()?));
        self.text.push(':');
        match value.filter(|value| !value.is_none()) {
            Some(value) => self
                .text
                .push_str(&quoted(value.cast::<PyString>()?.to_str()?)),
            None => self.text.push_str("null"),
        }
        Ok(())
    }

    fn finish(mut self) -> String {
        self.text
            .push_str(if self.text.is_empty() { "{}" } else { "}" });
        self.text
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn json_text(mapping: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(serde_json::Value::Object(to_object(mapping)?).to_string())
}

fn extra_text(extra: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if extra.len()? == 0 {
        return Ok(None);
    }
    json_text(extra).map(Some)
}

fn present(value: Bound<'_, PyAny>) -> Option<Bound<'_, PyAny>> {
    (!value.is_none()).then_some(value)
}
