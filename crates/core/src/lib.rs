//! Delta log logic without I/O: actions, codec, replay, pruning.
