//! The logic of the Delta log without I/O: actions, JSON codec, replay, data skipping.
pub mod actions;
pub mod codec;
pub mod columns;
pub mod decimal;
pub mod error;
pub mod files;
pub mod index;
pub mod json;
pub mod keys;
pub mod load;
pub mod object_writer;
pub mod predicate;
pub mod prune;
pub mod replay;
mod schema;
pub mod seen;
pub mod stats;
pub mod time;
