//! What can go wrong in the core.
use thiserror::Error;

#[derive(Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// A line of a commit is no action.
    #[error("line {line}, column {column}: {message}")]
    Line {
        line: usize,
        column: usize,
        message: String,
    },
    /// Commits must be replayed one after the other.
    #[error("expected version {expected}, got version {found}")]
    Version { expected: i64, found: i64 },
    /// A pruning tree that cannot be read.
    #[error("not a predicate: {0}")]
    Predicate(String),
    /// An Arrow table that is no list of files.
    #[error("not a list of files: {0}")]
    Files(String),
}

impl Error {
    /// The error of one line, with the position that `serde_json` puts into its text moved to fields.
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
