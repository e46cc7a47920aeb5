//! A list of files as Arrow columns, so that no object per file is needed.
use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, BooleanArray, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use serde::de::DeserializeOwned;

use crate::actions::{AddFile, RemoveFile, StringMap};
use crate::columns::{
    batch_of, boolean, file_schema, files_error, long, readable_batch, readable_schema, Texts,
};
use crate::error::Error;
use crate::json::Json;
use crate::predicate::Predicate;
use crate::prune::PartitionFacts;

/// The rows of one batch, few enough that its strings stay below Arrow's limit of 2 GB.
const BATCH_ROWS: usize = 65_536;
/// From this number of files on, several threads are faster.
const PARALLEL_ROWS: usize = 20_000;

/// Live files of a table, in input order.
#[derive(Clone, Debug)]
pub struct FileList {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    /// The first row of each batch, and at the end the total number of rows.
    starts: Vec<usize>,
}

impl FileList {
    /// Return a list of Arrow batches, which need at least a `path` column.
    pub fn try_new(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Self, Error> {
        let readable = readable_schema(schema)?;
        let cast = batches.iter().map(|batch| readable_batch(batch, &readable));
        let batches = cast.collect::<Result<Vec<_>, _>>()?;
        Ok(Self::of(readable, batches))
    }

    /// Return a list of `add` actions.
    pub fn from_adds(adds: &[Arc<AddFile>], partition_columns: &[String]) -> Result<Self, Error> {
        let batches = adds
            .chunks(BATCH_ROWS)
            .map(|chunk| batch_of(chunk, partition_columns));
        let batches = batches.collect::<Result<Vec<_>, _>>()?;
        Ok(Self::of(file_schema(), batches))
    }

    /// Replace the column `partition_id` with `partition`, which has the values as JSON.
    pub fn with_partitions(&self, partitions: &HashMap<i64, String>) -> Result<Self, Error> {
        let Some((position, _)) = self.schema.column_with_name("partition_id") else {
            return Ok(self.clone());
        };
        let mut fields = self.schema.fields().to_vec();
        fields[position] = Arc::new(Field::new("partition", DataType::Utf8, true));
        let schema = Arc::new(Schema::new(fields));
        let replaced = self.batches.iter().map(|batch| {
            let ids = batch.column(position).as_primitive_opt::<Int64Type>();
            let ids = ids.ok_or_else(|| Error::Files("partition_id is not int64".to_owned()))?;
            let texts: StringArray = ids
                .iter()
                .map(|id| id.and_then(|id| partitions.get(&id)))
                .collect();
            let mut columns = batch.columns().to_vec();
            columns[position] = Arc::new(texts);
            RecordBatch::try_new(Arc::clone(&schema), columns).map_err(files_error)
        });
        let batches = replaced.collect::<Result<Vec<_>, _>>()?;
        Ok(Self::of(schema, batches))
    }

    fn of(schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        let mut starts = vec![0];
        for batch in &batches {
            starts.push(starts[starts.len() - 1] + batch.num_rows());
        }
        Self {
            schema,
            batches,
            starts,
        }
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    pub fn len(&self) -> usize {
        self.starts[self.starts.len() - 1]
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.batches.iter().flat_map(|batch| {
            let paths = Texts::of(batch, "path");
            (0..batch.num_rows()).map(move |row| paths.get(row).unwrap_or_default())
        })
    }

    /// Return the file at `index`, which must be in range.
    pub fn get(&self, index: usize) -> Result<AddFile, Error> {
        let batch_index = self.starts.partition_point(|start| *start <= index) - 1;
        let row = index - self.starts[batch_index];
        let batch = self
            .batches
            .get(batch_index)
            .ok_or_else(|| Error::Files(format!("no file {index} among {}", self.len())))?;
        let owned = |name| Texts::of(batch, name).get(row).map(str::to_owned);
        Ok(AddFile {
            path: owned("path").unwrap_or_default(),
            partition_values: parsed(batch, "partition", row)?.unwrap_or_default(),
            size: long(batch, "size", row).unwrap_or_default(),
            modification_time: long(batch, "modification_time", row).unwrap_or_default(),
            data_change: boolean(batch, "data_change", row).unwrap_or(true),
            stats: owned("stats"),
            tags: parsed(batch, "tags", row)?,
            deletion_vector: parsed(batch, "deletion_vector", row)?,
            base_row_id: long(batch, "base_row_id", row),
            default_row_commit_version: long(batch, "default_row_commit_version", row),
            clustering_provider: owned("clustering_provider"),
            extra: parsed::<Json>(batch, "extra", row)?
                .and_then(Json::into_object)
                .unwrap_or_default(),
        })
    }

    /// Return all files, in order.
    pub fn adds(&self) -> Result<Vec<AddFile>, Error> {
        let mut adds = Vec::with_capacity(self.len());
        for batch in &self.batches {
            adds_of(batch, &mut adds)?;
        }
        Ok(adds)
    }

    /// Return a list of tombstones as `remove` actions; every partition column gets a value.
    pub fn removes(&self, partition_columns: &[String]) -> Result<Vec<RemoveFile>, Error> {
        let rows = self.batches.iter();
        let rows = rows.flat_map(|batch| (0..batch.num_rows()).map(move |row| (batch, row)));
        rows.map(|(batch, row)| remove_of(batch, row, partition_columns))
            .collect()
    }

    /// Return for each batch which files may have a row that satisfies the predicate.
    pub fn mask(&self, predicate: &Predicate) -> Vec<BooleanArray> {
        let masks_of =
            |batches: &[RecordBatch]| batches.iter().map(|b| mask_of(b, predicate)).collect();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        if threads == 1 || self.batches.len() == 1 || self.len() < PARALLEL_ROWS {
            return masks_of(&self.batches);
        }
        let per_thread = self.batches.len().div_ceil(threads);
        std::thread::scope(|scope| {
            let start = |batches| scope.spawn(move || -> Vec<_> { masks_of(batches) });
            let running: Vec<_> = self.batches.chunks(per_thread).map(start).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, Vec<BooleanArray>>| {
                thread
                    .join()
                    .unwrap_or_else(|p| std::panic::resume_unwind(p))
            };
            running.into_iter().flat_map(join).collect()
        })
    }

    /// Return the files that may match.
    pub fn prune(&self, predicate: &Predicate) -> Result<Self, Error> {
        let masks = self.mask(predicate);
        let kept = self.batches.iter().zip(&masks).map(|(batch, mask)| {
            arrow_select::filter::filter_record_batch(batch, mask).map_err(files_error)
        });
        let batches = kept.collect::<Result<Vec<_>, _>>()?;
        Ok(Self::of(Arc::clone(&self.schema), batches))
    }
}

fn mask_of(batch: &RecordBatch, predicate: &Predicate) -> BooleanArray {
    let stats = Texts::of(batch, "stats");
    let partitions = Texts::of(batch, "partition");
    let mut known: HashMap<&str, PartitionFacts> = HashMap::new();
    let unknown = predicate.partition_facts(None);
    let mut keep = Vec::with_capacity(batch.num_rows());
    for row in 0..batch.num_rows() {
        let values = partitions.get(row).filter(|_| predicate.reads_partitions());
        // Many files share a partition, so its values are parsed once.
        let facts = values.map_or(&unknown, |text| {
            known
                .entry(text)
                .or_insert_with(|| predicate.partition_facts(Some(text)))
        });
        keep.push(predicate.may_match(stats.get(row), facts));
    }
    BooleanArray::from(keep)
}

fn adds_of(batch: &RecordBatch, adds: &mut Vec<AddFile>) -> Result<(), Error> {
    let text = |name| Texts::of(batch, name);
    let (paths, partitions, stats) = (text("path"), text("partition"), text("stats"));
    let (tags, vectors, extras) = (text("tags"), text("deletion_vector"), text("extra"));
    let providers = text("clustering_provider");
    let number = |name| {
        batch
            .column_by_name(name)
            .map(|c| c.as_primitive::<Int64Type>())
    };
    let (sizes, times) = (number("size"), number("modification_time"));
    let (bases, versions) = (number("base_row_id"), number("default_row_commit_version"));
    let at = |column: Option<&Int64Array>, row| {
        column.and_then(|column| column.is_valid(row).then(|| column.value(row)))
    };
    // Many files share a partition, so its values are parsed once.
    let mut known: HashMap<&str, StringMap> = HashMap::new();
    for row in 0..batch.num_rows() {
        let owned = |column: &Texts<'_>| column.get(row).map(str::to_owned);
        let partition_values = match partitions.get(row) {
            None => StringMap::new(),
            Some(json) => match known.get(json) {
                Some(values) => values.clone(),
                None => {
                    let values: StringMap = parsed_text("partition", json)?;
                    known.insert(json, values.clone());
                    values
                }
            },
        };
        adds.push(AddFile {
            path: owned(&paths).unwrap_or_default(),
            partition_values,
            size: at(sizes, row).unwrap_or_default(),
            modification_time: at(times, row).unwrap_or_default(),
            data_change: boolean(batch, "data_change", row).unwrap_or(true),
            stats: owned(&stats),
            tags: tags.get(row).map(|j| parsed_text("tags", j)).transpose()?,
            deletion_vector: vectors
                .get(row)
                .map(|json| parsed_text("deletion_vector", json))
                .transpose()?,
            base_row_id: at(bases, row),
            default_row_commit_version: at(versions, row),
            clustering_provider: owned(&providers),
            extra: extras
                .get(row)
                .map(|json| parsed_text::<Json>("extra", json))
                .transpose()?
                .and_then(Json::into_object)
                .unwrap_or_default(),
        });
    }
    Ok(())
}

fn remove_of(
    batch: &RecordBatch,
    row: usize,
    partition_columns: &[String],
) -> Result<RemoveFile, Error> {
    let owned = |name| Texts::of(batch, name).get(row).map(str::to_owned);
    let extended_file_metadata = boolean(batch, "extended_file_metadata", row);
    // Some writers write partition values without `extendedFileMetadata`. `{}` means that there are
    // no values.
    let recorded = parsed::<StringMap>(batch, "partition", row)?.unwrap_or_default();
    let partition_values =
        (extended_file_metadata == Some(true) || !recorded.is_empty()).then(|| {
            let mut values: StringMap = partition_columns
                .iter()
                .map(|column| (column.clone(), None))
                .collect();
            values.extend(recorded);
            values
        });
    Ok(RemoveFile {
        path: owned("path").unwrap_or_default(),
        deletion_timestamp: long(batch, "deletion_timestamp", row),
        // Tombstones come from a checkpoint, whose actions change no data.
        data_change: boolean(batch, "data_change", row).unwrap_or(false),
        extended_file_metadata,
        partition_values,
        size: long(batch, "size", row),
        stats: owned("stats"),
        tags: parsed(batch, "tags", row)?,
        deletion_vector: parsed(batch, "deletion_vector", row)?,
        base_row_id: long(batch, "base_row_id", row),
        default_row_commit_version: long(batch, "default_row_commit_version", row),
        extra: parsed::<Json>(batch, "extra", row)?
            .and_then(Json::into_object)
            .unwrap_or_default(),
    })
}

fn parsed<T: DeserializeOwned>(
    batch: &RecordBatch,
    name: &str,
    row: usize,
) -> Result<Option<T>, Error> {
    let text = Texts::of(batch, name).get(row);
    text.map(|json| parsed_text(name, json)).transpose()
}

fn parsed_text<T: DeserializeOwned>(name: &str, json: &str) -> Result<T, Error> {
    serde_json::from_str(json).map_err(|error| Error::Files(format!("{name}: {error}")))
}
