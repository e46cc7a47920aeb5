//! Convert between the actions of the core and the dataclasses of `deltasql.model.actions`.
use std::sync::Arc;

use deltasql_core::actions::{
    Action, AddCdcFile, AddFile, CheckpointMetadata, CommitInfo, DeletionVector, DomainMetadata,
    Format, Metadata, Protocol, RemoveFile, SetTransaction, Sidecar, StringList, StringMap,
};
use deltasql_core::{field_value, for_each_action};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyString, PyTuple, PyType};
use pyo3::{intern, IntoPyObjectExt};
use serde_json::Value;

use crate::errors::invalid_action;
use crate::files::File;
use crate::json::{for_each_item, is_mapping, object_to_python, to_json, to_object, to_python};

/// The value of an action's field, which can be converted from and to Python.
pub trait PyField: Sized {
    fn from_python(object: &Bound<'_, PyAny>) -> PyResult<Self>;
    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>>;
}

macro_rules! bind_actions {
    ($(
        $(#[$doc:meta])*
        $name:ident { $( [$($mode:tt)+] $field:ident : $type:ty = $json:literal, )+ }
    )+) => { $(
        impl PyField for $name {
            fn from_python(object: &Bound<'_, PyAny>) -> PyResult<Self> {
                let py = object.py();
                if is_mapping(object) {
                    return from_body(object);
                }
                Ok(Self {
                    $( $field: field_value!(
                        [$($mode)+]
                        read::<$type>(object, intern!(py, stringify!($field)))?,
                        PyTypeError::new_err(concat!("`", stringify!($field), "` is missing"))
                    ), )+
                    extra: to_object(&object.getattr(intern!(py, "extra"))?)?,
                })
            }

            /// Passes the fields by position, because the action and the dataclass have the same
            /// order.
            fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
                let class = CLASS.import(py, "deltasql.model.actions", stringify!($name))?;
                class.call1(PyTuple::new(py, [
                    $( self.$field.to_python(py)?, )+
                    object_to_python(py, &self.extra)?.into_any(),
                ])?)
            }
        }
    )+ };
}

for_each_action!(bind_actions);

/// Convert a dataclass, a `File` or a `{kind: {...}}` mapping to an action.
///
/// Returns an `InvalidActionError` for any other object.
pub fn action_from_python(object: &Bound<'_, PyAny>) -> PyResult<Action> {
    read_action(object).map_err(|error| {
        let message = format!("not a Delta action: {}", error.value(object.py()));
        invalid_action(object.py(), &message, Some(error))
    })
}

fn read_action(object: &Bound<'_, PyAny>) -> PyResult<Action> {
    if let Ok(file) = object.cast::<File>() {
        return Ok(Action::Add(file.get().add()));
    }
    if is_mapping(object) {
        return from_body(object);
    }
    let kind = object.getattr(intern!(object.py(), "kind"))?;
    Ok(match kind.cast::<PyString>()?.to_str()? {
        "add" => Action::Add(Arc::new(PyField::from_python(object)?)),
        "remove" => Action::Remove(Arc::new(PyField::from_python(object)?)),
        "cdc" => Action::Cdc(boxed(object)?),
        "metaData" => Action::Metadata(boxed(object)?),
        "protocol" => Action::Protocol(boxed(object)?),
        "txn" => Action::Txn(boxed(object)?),
        "domainMetadata" => Action::DomainMetadata(boxed(object)?),
        "commitInfo" => Action::CommitInfo(boxed(object)?),
        "sidecar" => Action::Sidecar(boxed(object)?),
        "checkpointMetadata" => Action::CheckpointMetadata(boxed(object)?),
        other => return Err(PyValueError::new_err(format!("unknown kind `{other}`"))),
    })
}

/// Return the dataclass of an action; `None` for an unknown kind.
pub fn action_to_python<'py>(
    py: Python<'py>,
    action: &Action,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    match action {
        Action::Add(action) => action.to_python(py),
        Action::Remove(action) => action.to_python(py),
        Action::Cdc(action) => action.to_python(py),
        Action::Metadata(action) => action.to_python(py),
        Action::Protocol(action) => action.to_python(py),
        Action::Txn(action) => action.to_python(py),
        Action::DomainMetadata(action) => action.to_python(py),
        Action::CommitInfo(action) => action.to_python(py),
        Action::Sidecar(action) => action.to_python(py),
        Action::CheckpointMetadata(action) => action.to_python(py),
        Action::Unknown { .. } => return Ok(None),
    }
    .map(Some)
}

/// Return the JSON form of an action as Python objects.
pub fn action_to_dict<'py>(py: Python<'py>, action: &Action) -> PyResult<Bound<'py, PyAny>> {
    let value = serde_json::to_value(action).map_err(|e| PyValueError::new_err(e.to_string()))?;
    to_python(py, &value)
}

fn from_body<T: serde::de::DeserializeOwned>(object: &Bound<'_, PyAny>) -> PyResult<T> {
    let body = Value::Object(to_object(object)?).to_string();
    serde_json::from_str(&body).map_err(|e| PyValueError::new_err(e.to_string()))
}

fn boxed<T: PyField>(object: &Bound<'_, PyAny>) -> PyResult<Box<T>> {
    T::from_python(object).map(Box::new)
}

fn read<T: PyField>(object: &Bound<'_, PyAny>, name: &Bound<'_, PyString>) -> PyResult<Option<T>> {
    let value = object.getattr(name)?;
    if value.is_none() {
        return Ok(None);
    }
    T::from_python(&value).map(Some).map_err(|error| {
        let py = object.py();
        let named = PyTypeError::new_err(format!("field `{name}`: {}", error.value(py)));
        named.set_cause(py, Some(error));
        named
    })
}

impl<T: PyField> PyField for Option<T> {
    fn from_python(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        (!object.is_none())
            .then(|| T::from_python(object))
            .transpose()
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Some(value) => value.to_python(py),
            None => Ok(py.None().into_bound(py)),
        }
    }
}

impl PyField for String {
    fn from_python(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(object.cast::<PyString>()?.to_str()?.to_owned())
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyString::new(py, self).into_any())
    }
}

impl PyField for i64 {
    fn from_python(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        object.extract()
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.into_bound_py_any(py)
    }
}

impl PyField for bool {
    fn from_python(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(object.cast::<PyBool>()?.is_true())
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.into_bound_py_any(py)
    }
}

impl PyField for StringMap {
    fn from_python(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut map = Self::new();
        for_each_item(object, |key, value| {
            map.insert(key.to_str()?.to_owned(), PyField::from_python(value)?);
            Ok(())
        })?;
        Ok(map)
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let dict = PyDict::new(py);
        for (key, value) in self {
            dict.set_item(key, value)?;
        }
        Ok(dict.into_any())
    }
}

impl PyField for StringList {
    fn from_python(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err("expected a sequence of str, got str"));
        }
        object
            .try_iter()?
            .map(|item| String::from_python(&item?))
            .collect()
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyTuple::new(py, self)?.into_any())
    }
}

impl PyField for Value {
    fn from_python(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        to_json(object)
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, self)
    }
}
