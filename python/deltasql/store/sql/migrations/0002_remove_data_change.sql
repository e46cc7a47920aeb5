-- A removal without data change (compaction) must say so when the log is written again.
ALTER TABLE dl_remove_files ADD COLUMN data_change {bool} DEFAULT {true};
