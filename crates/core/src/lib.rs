//! Delta log logic without I/O: actions, codec, replay, pruning.
pub mod decimal;
pub mod index;
pub mod keys;
pub mod stats;
pub mod time;
