//! Bulk reads of a SQLite file through the very copy of SQLite that Python's module is linked to.
//!
//! POSIX locks belong to a process, so two copies of SQLite in one process damage files. The
//! functions are therefore looked up in what the loader gave that module, and nowhere else; where
//! the module has SQLite inside and shows none of it, there is no library and no bulk read.
use std::ffi::{c_char, c_int, c_uchar, c_void, CStr, CString};
use std::ptr;

use libloading::os::unix::{Library, RTLD_LAZY};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::bulk::{ArrowRows, Value};

const OK: c_int = 0;
const ROW: c_int = 100;
const DONE: c_int = 101;
const INTEGER: c_int = 1;
const FLOAT: c_int = 2;
const TEXT: c_int = 3;
const BLOB: c_int = 4;
/// Open for reading and writing, without a mutex: one thread uses it, and closing cleans up.
const OPEN_FLAGS: c_int = 0x2 | 0x8000;
/// Already in the process, or not at all.
const RTLD_NOLOAD: c_int = if cfg!(target_os = "macos") { 0x10 } else { 0x4 };

type Database = *mut c_void;
type Statement = *mut c_void;

/// The functions of SQLite that a read needs.
#[pyclass(module = "deltasql._core", frozen)]
pub struct SqliteLibrary {
    open: unsafe extern "C" fn(*const c_char, *mut Database, c_int, *const c_char) -> c_int,
    close: unsafe extern "C" fn(Database) -> c_int,
    busy_timeout: unsafe extern "C" fn(Database, c_int) -> c_int,
    message: unsafe extern "C" fn(Database) -> *const c_char,
    prepare: unsafe extern "C" fn(
        Database,
        *const c_char,
        c_int,
        *mut Statement,
        *mut *const c_char,
    ) -> c_int,
    step: unsafe extern "C" fn(Statement) -> c_int,
    finalize: unsafe extern "C" fn(Statement) -> c_int,
    column_count: unsafe extern "C" fn(Statement) -> c_int,
    column_name: unsafe extern "C" fn(Statement, c_int) -> *const c_char,
    column_type: unsafe extern "C" fn(Statement, c_int) -> c_int,
    column_int64: unsafe extern "C" fn(Statement, c_int) -> i64,
    column_double: unsafe extern "C" fn(Statement, c_int) -> f64,
    column_text: unsafe extern "C" fn(Statement, c_int) -> *const c_uchar,
    column_blob: unsafe extern "C" fn(Statement, c_int) -> *const c_void,
    column_bytes: unsafe extern "C" fn(Statement, c_int) -> c_int,
    // The functions are in it: it must stay loaded as long as they can be called.
    _library: Library,
}

#[pymethods]
impl SqliteLibrary {
    /// The library behind Python's module, which is loaded; None where it shows no functions.
    #[staticmethod]
    fn behind(module: &str) -> Option<Self> {
        // Safety: the file is loaded already, so nothing of it runs now.
        let library = unsafe { Library::open(Some(module), RTLD_LAZY | RTLD_NOLOAD) }.ok()?;
        // Safety: these are the signatures of SQLite's stable C interface.
        unsafe {
            let threadsafe =
                library.get::<unsafe extern "C" fn() -> c_int>(b"sqlite3_threadsafe\0");
            if threadsafe.ok()?() == 0 {
                return None;
            }
            Some(Self {
                open: *library.get(b"sqlite3_open_v2\0").ok()?,
                close: *library.get(b"sqlite3_close\0").ok()?,
                busy_timeout: *library.get(b"sqlite3_busy_timeout\0").ok()?,
                message: *library.get(b"sqlite3_errmsg\0").ok()?,
                prepare: *library.get(b"sqlite3_prepare_v2\0").ok()?,
                step: *library.get(b"sqlite3_step\0").ok()?,
                finalize: *library.get(b"sqlite3_finalize\0").ok()?,
                column_count: *library.get(b"sqlite3_column_count\0").ok()?,
                column_name: *library.get(b"sqlite3_column_name\0").ok()?,
                column_type: *library.get(b"sqlite3_column_type\0").ok()?,
                column_int64: *library.get(b"sqlite3_column_int64\0").ok()?,
                column_double: *library.get(b"sqlite3_column_double\0").ok()?,
                column_text: *library.get(b"sqlite3_column_text\0").ok()?,
                column_blob: *library.get(b"sqlite3_column_blob\0").ok()?,
                column_bytes: *library.get(b"sqlite3_column_bytes\0").ok()?,
                _library: library,
            })
        }
    }

    /// Run one read on a connection of its own and return its rows.
    fn read(
        &self,
        py: Python<'_>,
        database: &str,
        statement: &str,
        busy_timeout_ms: i32,
    ) -> PyResult<ArrowRows> {
        let path = CString::new(database)?;
        let text = CString::new(statement)?;
        py.detach(|| {
            let connection = Connection::open(self, &path, busy_timeout_ms)?;
            let mut reading = Reading::prepare(&connection, &text)?;
            let mut found = ArrowRows::with_names(reading.names()?);
            while reading.next()? {
                found.push_row(|number| reading.value(number))?;
            }
            Ok(found)
        })
    }
}

struct Connection<'a> {
    library: &'a SqliteLibrary,
    handle: Database,
}

impl<'a> Connection<'a> {
    fn open(library: &'a SqliteLibrary, path: &CStr, busy_timeout_ms: i32) -> PyResult<Self> {
        let mut handle = ptr::null_mut();
        // Safety: the path ends with a zero; a handle is given also where opening fails.
        let code = unsafe { (library.open)(path.as_ptr(), &mut handle, OPEN_FLAGS, ptr::null()) };
        let opened = Self { library, handle };
        if code != OK {
            return Err(opened.error());
        }
        // Safety: the handle is open.
        unsafe { (library.busy_timeout)(handle, busy_timeout_ms) };
        Ok(opened)
    }

    fn error(&self) -> PyErr {
        if self.handle.is_null() {
            return PyOSError::new_err("SQLite has no memory for a connection");
        }
        // Safety: the text is SQLite's and stays until the next call with this handle.
        let message = unsafe { CStr::from_ptr((self.library.message)(self.handle)) };
        PyOSError::new_err(message.to_string_lossy().into_owned())
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        // Safety: no statement of the connection is left; closing nothing does nothing.
        unsafe { (self.library.close)(self.handle) };
    }
}

struct Reading<'a> {
    connection: &'a Connection<'a>,
    statement: Statement,
}

impl<'a> Reading<'a> {
    fn prepare(connection: &'a Connection<'a>, text: &CStr) -> PyResult<Self> {
        let mut statement = ptr::null_mut();
        // Safety: the connection is open and the text ends with a zero.
        let code = unsafe {
            (connection.library.prepare)(
                connection.handle,
                text.as_ptr(),
                -1,
                &mut statement,
                ptr::null_mut(),
            )
        };
        if code != OK || statement.is_null() {
            return Err(connection.error());
        }
        Ok(Self {
            connection,
            statement,
        })
    }

    fn names(&self) -> PyResult<Vec<String>> {
        let library = self.connection.library;
        // Safety: the statement is prepared; a name stays until it is finalized.
        let count = unsafe { (library.column_count)(self.statement) };
        (0..count)
            .map(|number| {
                let name = unsafe { (library.column_name)(self.statement, number) };
                if name.is_null() {
                    return Err(self.connection.error());
                }
                Ok(unsafe { CStr::from_ptr(name) }
                    .to_string_lossy()
                    .into_owned())
            })
            .collect()
    }

    fn next(&mut self) -> PyResult<bool> {
        // Safety: the statement is prepared.
        match unsafe { (self.connection.library.step)(self.statement) } {
            ROW => Ok(true),
            DONE => Ok(false),
            _ => Err(self.connection.error()),
        }
    }

    /// A value of the present row; text and bytes are SQLite's until the next step.
    fn value(&self, number: usize) -> PyResult<Value<'_>> {
        let (library, statement) = (self.connection.library, self.statement);
        let number = c_int::try_from(number)?;
        // Safety: the statement stands on a row and has this column.
        let kind = unsafe { (library.column_type)(statement, number) };
        Ok(match kind {
            INTEGER => Value::Long(unsafe { (library.column_int64)(statement, number) }),
            FLOAT => Value::Real(unsafe { (library.column_double)(statement, number) }),
            TEXT => {
                let start = unsafe { (library.column_text)(statement, number) };
                let bytes = self.bytes(start, number)?;
                Value::Text(
                    std::str::from_utf8(bytes)
                        .map_err(|error| PyValueError::new_err(error.to_string()))?,
                )
            }
            BLOB => {
                let start = unsafe { (library.column_blob)(statement, number) };
                Value::Bytes(self.bytes(start.cast(), number)?)
            }
            _ => Value::Null,
        })
    }

    fn bytes(&self, start: *const u8, number: c_int) -> PyResult<&[u8]> {
        // Safety: asked after the text or the blob itself, the length is that of its bytes.
        let length = unsafe { (self.connection.library.column_bytes)(self.statement, number) };
        let length = usize::try_from(length)?;
        if length == 0 {
            return Ok(&[]);
        }
        if start.is_null() {
            return Err(self.connection.error());
        }
        // Safety: SQLite keeps so many bytes there until the next step.
        Ok(unsafe { std::slice::from_raw_parts(start, length) })
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        // Safety: the statement is prepared and is not used again.
        unsafe { (self.connection.library.finalize)(self.statement) };
    }
}
