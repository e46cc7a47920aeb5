//! Read the files of a commit from Python objects, for the rows of the store.
use std::collections::HashMap;

use deltasql_core::actions::{AddFile, DeletionVector};
use deltasql_core::columns::{json_text, partition_text};
use deltasql_core::object_writer::ObjectWriter;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use pyo3::{intern, IntoPyObjectExt};

use crate::errors::invalid_action;
use crate::files::File;
use crate::json::{for_each_item, to_object};

/// One `AddFile`. Values that are passed to the row unchanged stay Python objects.
pub struct Row<'py> {
    pub path: Bound<'py, PyString>,
    pub partition: usize,
    pub stats: Option<Bound<'py, PyString>>,
    /// Size, modification time, data change, base row id, default row commit version and
    /// clustering provider.
    pub plain: [Bound<'py, PyAny>; 6],
    pub tags: Option<String>,
    pub deletion_vector: Option<String>,
    pub dv_id: Option<String>,
    pub extra: Option<String>,
}

impl<'py> Row<'py> {
    /// Read an `AddFile` or a `File`.
    pub fn of(add: &Bound<'py, PyAny>, partitions: &mut Partitions<'py>) -> PyResult<Self> {
        if let Ok(file) = add.cast::<File>() {
            return Self::of_file(add.py(), &file.get().add(), partitions);
        }
        Self::read(add, partitions).map_err(|error| {
            let name = add
                .repr()
                .map_or_else(|_| "?".into(), |text| text.to_string());
            let message = format!("cannot index {name}: not a valid add action");
            invalid_action(add.py(), &message, Some(error))
        })
    }

    fn of_file(py: Python<'py>, add: &AddFile, partitions: &mut Partitions<'py>) -> PyResult<Self> {
        let text = partition_text(&add.partition_values, &partitions.names);
        Ok(Self {
            path: PyString::new(py, &add.path),
            partition: partitions.position_of(text),
            stats: add.stats.as_ref().map(|stats| PyString::new(py, stats)),
            plain: [
                add.size.into_bound_py_any(py)?,
                add.modification_time.into_bound_py_any(py)?,
                add.data_change.into_bound_py_any(py)?,
                add.base_row_id.into_bound_py_any(py)?,
                add.default_row_commit_version.into_bound_py_any(py)?,
                add.clustering_provider.as_deref().into_bound_py_any(py)?,
            ],
            tags: add.tags.as_ref().map(json_text),
            dv_id: add.deletion_vector.as_ref().map(DeletionVector::unique_id),
            deletion_vector: add.deletion_vector.as_ref().map(json_text),
            extra: (!add.extra.is_empty()).then(|| json_text(&add.extra)),
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
                .map(|tags| mapping_text(&tags))
                .transpose()?,
            dv_id: deletion_vector
                .as_ref()
                .map(|dv| dv.getattr(intern!(py, "unique_id"))?.extract())
                .transpose()?,
            deletion_vector: deletion_vector
                .map(|dv| mapping_text(&dv.call_method0(intern!(py, "body"))?))
                .transpose()?,
            extra: extra_text(&add.getattr(intern!(py, "extra"))?)?,
        })
    }
}

/// The distinct partitions of a commit, in the order of first use.
pub struct Partitions<'py> {
    columns: Vec<Bound<'py, PyString>>,
    names: Vec<String>,
    pub texts: Vec<String>,
    positions: HashMap<String, usize>,
    last: usize,
}

impl<'py> Partitions<'py> {
    pub fn new(columns: Vec<Bound<'py, PyString>>) -> PyResult<Self> {
        let names = columns.iter().map(|column| Ok(column.to_str()?.to_owned()));
        Ok(Self {
            names: names.collect::<PyResult<_>>()?,
            columns,
            texts: Vec::new(),
            positions: HashMap::new(),
            last: 0,
        })
    }

    fn position(&mut self, values: &Bound<'py, PyAny>) -> PyResult<usize> {
        Ok(self.position_of(self.text(values)?))
    }

    fn position_of(&mut self, text: String) -> usize {
        // The previous file is often in the same partition.
        if self.texts.get(self.last) == Some(&text) {
            return self.last;
        }
        let next = self.texts.len();
        self.last = *self.positions.entry(text).or_insert_with_key(|text| {
            self.texts.push(text.clone());
            next
        });
        self.last
    }

    fn text(&self, values: &Bound<'py, PyAny>) -> PyResult<String> {
        let mut out = ObjectWriter::default();
        let count = values.len()?;
        let mut used = 0;
        for (column, name) in self.columns.iter().zip(&self.names) {
            let value = match values.cast::<PyDict>() {
                Ok(dict) => dict.get_item(column)?,
                Err(_) if values.contains(column)? => Some(values.get_item(column)?),
                Err(_) => None,
            };
            used += usize::from(value.is_some());
            python_entry(&mut out, name, value)?;
        }
        if used < count {
            for_each_item(values, |key, value| {
                let name = key.to_str()?;
                if self.names.iter().any(|column| column == name) {
                    return Ok(());
                }
                python_entry(&mut out, name, Some(value.clone()))
            })?;
        }
        Ok(out.finish())
    }
}

fn python_entry(
    out: &mut ObjectWriter,
    key: &str,
    value: Option<Bound<'_, PyAny>>,
) -> PyResult<()> {
    match value.and_then(present) {
        Some(value) => out.entry(key, Some(value.cast::<PyString>()?.to_str()?)),
        None => out.entry(key, None),
    }
    Ok(())
}

fn mapping_text(mapping: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(serde_json::Value::Object(to_object(mapping)?).to_string())
}

fn extra_text(extra: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if extra.len()? == 0 {
        return Ok(None);
    }
    mapping_text(extra).map(Some)
}

fn present(value: Bound<'_, PyAny>) -> Option<Bound<'_, PyAny>> {
    (!value.is_none()).then_some(value)
}
