//! Convert between Python objects and JSON values.
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple};
use serde_json::{Map, Number, Value};

/// The maximum nesting, as in the parser; deeper objects could overflow the stack.
const MAX_DEPTH: usize = 120;

/// Convert a Python object to JSON; a float is written like Python's `repr`.
pub fn to_json(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    to_json_below(object, 0)
}

/// Convert a Python mapping with string keys to a JSON object with the same order.
pub fn to_object(mapping: &Bound<'_, PyAny>) -> PyResult<Map<String, Value>> {
    to_object_below(mapping, 0)
}

fn to_json_below(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
    if object.is_none() {
        Ok(Value::Null)
    } else if let Ok(text) = object.cast::<PyString>() {
        Ok(Value::String(text.to_str()?.to_owned()))
    } else if let Ok(flag) = object.cast::<PyBool>() {
        Ok(Value::Bool(flag.is_true()))
    } else if object.is_instance_of::<PyInt>() {
        match object.extract::<i64>() {
            Ok(number) => Ok(Value::Number(number.into())),
            Err(_) => number(object),
        }
    } else if object.is_instance_of::<PyFloat>() {
        number(object)
    } else if depth > MAX_DEPTH {
        Err(PyValueError::new_err(format!(
            "JSON that is more than {MAX_DEPTH} levels deep"
        )))
    } else if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        let items = object
            .try_iter()?
            .map(|item| to_json_below(&item?, depth + 1));
        Ok(Value::Array(items.collect::<PyResult<_>>()?))
    } else if is_mapping(object) {
        Ok(Value::Object(to_object_below(object, depth + 1)?))
    } else {
        Err(PyTypeError::new_err(format!(
            "{} has no JSON form",
            object.get_type()
        )))
    }
}

fn to_object_below(mapping: &Bound<'_, PyAny>, depth: usize) -> PyResult<Map<String, Value>> {
    let mut object = Map::new();
    for_each_item(mapping, |key, value| {
        object.insert(key.to_str()?.to_owned(), to_json_below(value, depth)?);
        Ok(())
    })?;
    Ok(object)
}

/// Call `visit` for each item of a dict or another mapping.
pub fn for_each_item<'py>(
    mapping: &Bound<'py, PyAny>,
    mut visit: impl FnMut(&Bound<'py, PyString>, &Bound<'py, PyAny>) -> PyResult<()>,
) -> PyResult<()> {
    if let Ok(dict) = mapping.cast::<PyDict>() {
        for (key, value) in dict.iter() {
            visit(key.cast()?, &value)?;
        }
        return Ok(());
    }
    for item in mapping.cast::<PyMapping>()?.items()?.iter() {
        let (key, value) = item.extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>()?;
        visit(key.cast()?, &value)?;
    }
    Ok(())
}

/// Return true for a dict and for every other mapping.
pub fn is_mapping(object: &Bound<'_, PyAny>) -> bool {
    object.cast::<PyDict>().is_ok() || object.cast::<PyMapping>().is_ok()
}

/// Convert JSON to Python objects.
pub fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(flag) => PyBool::new(py, *flag).to_owned().into_any(),
        Value::Number(number) => number_to_python(py, number)?,
        Value::String(text) => PyString::new(py, text).into_any(),
        Value::Array(items) => {
            let list = PyList::empty(py);
            for item in items {
                list.append(to_python(py, item)?)?;
            }
            list.into_any()
        }
        Value::Object(map) => object_to_python(py, map)?.into_any(),
    })
}

/// Convert a JSON object to a dict.
pub fn object_to_python<'py>(
    py: Python<'py>,
    map: &Map<String, Value>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (key, value) in map {
        dict.set_item(key, to_python(py, value)?)?;
    }
    Ok(dict)
}

fn number(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    let text = object.repr()?;
    let number: Number = serde_json::from_str(text.to_str()?)
        .map_err(|_| PyValueError::new_err(format!("{text} is not a JSON number")))?;
    Ok(Value::Number(number))
}

fn number_to_python<'py>(py: Python<'py>, number: &Number) -> PyResult<Bound<'py, PyAny>> {
    if let Some(small) = number.as_i64() {
        return Ok(small.into_pyobject(py)?.into_any());
    }
    let text = number.to_string();
    let is_integer = text.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    if is_integer {
        return py.get_type::<PyInt>().call1((text,));
    }
    py.get_type::<PyFloat>().call1((text,))
}
