-- The bounds of each file of the range, packed into bytes (crates/core/src/file_bounds.rs). NULL for a range of one file, for
-- rows of earlier releases, and if the bounds are the same for all files: then all files of the range remain candidates.
ALTER TABLE dl_file_stats ADD COLUMN file_bounds {blob};
