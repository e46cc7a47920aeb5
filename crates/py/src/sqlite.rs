//! Bulk reads of a SQLite file with the SQLite library that Python's `sqlite3` module uses.
//!
//! POSIX locks belong to a process, so two copies of SQLite in one process can corrupt a file. The
//! functions are therefore looked up only in the library that the module has loaded. If SQLite is
//! linked statically into the module without exported functions, there are no bulk reads.
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
/// `SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX`: only one thread uses a connection. Closing it may
/// write, because the last connection cleans up the write-ahead log.
const OPEN_FLAGS: c_int = 0x2 | 0x8000;
/// Do not load the library; open it only if the process has already loaded it.
const RTLD_NOLOAD: c_int = if cfg!(target_os = "macos") { 0x10 } else { 0x4 };

type Database = *mut c_void;
type Statement = *mut c_void;

/// The functions of the SQLite library that a read uses.
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
    // The library stays loaded as long as its functions can be called.
    _library: Library,
}

#[pymethods]
impl SqliteLibrary {
    /// Return the library that a loaded Python module uses; None if it exports no functions.
    #[staticmethod]
    fn behind(module: &str) -> Option<Self> {
        // SAFETY: the library is loaded already, so no initialization code runs.
        let library = unsafe { Library::open(Some(module), RTLD_LAZY | RTLD_NOLOAD) }.ok()?;
        // SAFETY: these are the signatures of SQLite's stable C interface.
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

    /// Run one query on a new connection and return its rows.
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
        // SAFETY: the path ends with a zero byte; SQLite sets the handle even if opening fails.
        let code = unsafe { (library.open)(path.as_ptr(), &mut handle, OPEN_FLAGS, ptr::null()) };
        let opened = Self { library, handle };
        if code != OK {
            return Err(opened.error());
        }
        // SAFETY: the handle is open.
        unsafe { (library.busy_timeout)(handle, busy_timeout_ms) };
        Ok(opened)
    }

    fn error(&self) -> PyErr {
        if self.handle.is_null() {
            return PyOSError::new_err("SQLite has no memory for a connection");
        }
        // SAFETY: SQLite owns the message, which is valid until the next call with this handle.
        let message = unsafe { CStr::from_ptr((self.library.message)(self.handle)) };
        PyOSError::new_err(message.to_string_lossy().into_owned())
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        // SAFETY: the connection has no open statements; closing a null handle does nothing.
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
        // SAFETY: the connection is open, and the text ends with a zero byte.
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
        // SAFETY: the statement is prepared; a name is valid until the statement is finalized.
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
        // SAFETY: the statement is prepared.
        match unsafe { (self.connection.library.step)(self.statement) } {
            ROW => Ok(true),
            DONE => Ok(false),
            _ => Err(self.connection.error()),
        }
    }

    /// Return a value of the current row; text and bytes are valid until the next step.
    fn value(&self, number: usize) -> PyResult<Value<'_>> {
        let (library, statement) = (self.connection.library, self.statement);
        let number = c_int::try_from(number)?;
        // SAFETY: the statement has a current row with this column.
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
        // SAFETY: after `column_text` or `column_blob`, this is the length of that value in bytes.
        let length = unsafe { (self.connection.library.column_bytes)(self.statement, number) };
        let length = usize::try_from(length)?;
        if length == 0 {
            return Ok(&[]);
        }
        if start.is_null() {
            return Err(self.connection.error());
        }
        // SAFETY: SQLite keeps this many bytes at `start` until the next step.
        Ok(unsafe { std::slice::from_raw_parts(start, length) })
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        // SAFETY: the statement is prepared and is not used again.
        unsafe { (self.connection.library.finalize)(self.statement) };
    }
}
