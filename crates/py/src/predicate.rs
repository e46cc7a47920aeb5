//! `Predicate`: a compiled predicate for data skipping.
use deltasql_core::predicate::Predicate as CorePredicate;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A predicate for data skipping, compiled once and evaluated for many files.
#[pyclass(frozen, module = "deltasql._core")]
pub struct Predicate {
    compiled: CorePredicate,
}

impl Predicate {
    pub fn compiled(&self) -> &CorePredicate {
        &self.compiled
    }
}

#[pymethods]
impl Predicate {
    #[new]
    fn new(json_text: &str) -> PyResult<Self> {
        CorePredicate::parse(json_text)
            .map(|compiled| Self { compiled })
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Return False only if no row of a file with these statistics and partition values can match.
    #[pyo3(signature = (stats, partition_json))]
    fn may_match(&self, stats: Option<&str>, partition_json: Option<&str>) -> bool {
        let partition = self.compiled.partition_facts(partition_json);
        self.compiled.may_match(stats, &partition)
    }
}
