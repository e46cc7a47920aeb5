//! The error type of the core.
use thiserror::Error;

#[derive(Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// A line of a commit file is not a valid action.
    #[error("line {line}, column {column}: {message}")]
    Line {
        line: usize,
        column: usize,
        message: String,
    },
    /// A commit does not have the version after the last replayed one.
    #[error("expected version {expected}, got version {found}")]
    Version { expected: i64, found: i64 },
    /// The JSON of a predicate is invalid.
    #[error("not a predicate: {0}")]
    Predicate(String),
    /// Arrow data does not have the columns of a list of files.
    #[error("not a list of files: {0}")]
    Files(String),
    /// A set of row positions cannot be decoded.
    #[error("{0}")]
    RowSet(String),
}

impl Error {
    /// Return the error for one line; the position is taken out of `serde_json`'s message.
    pub fn of_line(line: usize, error: &serde_json::Error) -> Self {
        let text = error.to_string();
        let message = text.split(" at line ").next().unwrap_or(&text).to_owned();
        Self::Line {
            line,
            column: error.column(),
            message,
        }
    }
}
