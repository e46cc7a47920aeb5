//! The row of a file in `dl_add_files`, in the format of each database.
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::copy::CopyRows;

/// The number of columns of `dl_add_files`: table id, `FileRow::values`, version.
pub const COLUMNS: usize = 17;
pub const KEY: usize = 3;
pub const DATA_CHANGE: usize = 7;

type IsFilled = fn(&FileRow, Python<'_>) -> bool;
pub const NULLABLE: [(usize, IsFilled); 8] = [
    (8, |file, _| file.stats.is_some()),
    (9, |file, _| file.num_records.is_some()),
    (10, |file, _| file.tags.is_some()),
    (11, |file, _| file.deletion_vector.is_some()),
    (12, |file, py| !file.plain[3].is_none(py)),
    (13, |file, py| !file.plain[4].is_none(py)),
    (14, |file, py| !file.plain[5].is_none(py)),
    (15, |file, _| file.extra.is_some()),
];

/// One file, with its values in the order of the columns.
pub struct FileRow {
    pub file_id: i64,
    pub path: Py<PyString>,
    pub key: [u8; 16],
    pub partition: usize,
    pub stats: Option<Py<PyString>>,
    pub num_records: Option<i64>,
    pub plain: [Py<PyAny>; 6],
    pub tags: Option<String>,
    pub deletion_vector: Option<String>,
    pub extra: Option<String>,
}

impl FileRow {
    pub fn values<'py>(
        &self,
        py: Python<'py>,
        partition: Bound<'py, PyAny>,
    ) -> PyResult<[Bound<'py, PyAny>; 15]> {
        let plain = |at: usize| self.plain[at].bind(py).clone();
        Ok([
            self.file_id.into_pyobject(py)?.into_any(),
            self.path.bind(py).clone().into_any(),
            PyBytes::new(py, &self.key).into_any(),
            partition,
            plain(0),
            plain(1),
            plain(2),
            self.stats.as_ref().into_pyobject(py)?.into_any(),
            self.num_records.into_pyobject(py)?,
            self.tags.as_deref().into_pyobject(py)?,
            self.deletion_vector.as_deref().into_pyobject(py)?,
            plain(3),
            plain(4),
            plain(5),
            self.extra.as_deref().into_pyobject(py)?,
        ])
    }

    pub fn copy(
        &self,
        py: Python<'_>,
        copy: &mut CopyRows,
        table_id: i64,
        partition_id: i64,
        version: i64,
    ) -> PyResult<()> {
        let plain = |at: usize| self.plain[at].bind(py);
        copy.row(17);
        copy.bigint(Some(table_id));
        copy.bigint(Some(self.file_id));
        copy.bytes_of(Some(self.path.bind(py).to_str()?.as_bytes()));
        copy.bytes_of(Some(&self.key));
        copy.bigint(Some(partition_id));
        copy.bigint(plain(0).extract()?);
        copy.bigint(plain(1).extract()?);
        copy.boolean(plain(2).extract()?);
        match &self.stats {
            Some(stats) => copy.bytes_of(Some(stats.bind(py).to_str()?.as_bytes())),
            None => copy.bytes_of(None),
        }
        copy.bigint(self.num_records);
        copy.bytes_of(self.tags.as_deref().map(str::as_bytes));
        copy.bytes_of(self.deletion_vector.as_deref().map(str::as_bytes));
        copy.bigint(plain(3).extract()?);
        copy.bigint(plain(4).extract()?);
        copy.bytes_of(plain(5).extract::<Option<&str>>()?.map(str::as_bytes));
        copy.bytes_of(self.extra.as_deref().map(str::as_bytes));
        copy.bigint(Some(version));
        Ok(())
    }
}
