//! Many entries of dictionaries of Python at once, for checks that each call makes.

use pyo3::exceptions::PyValueError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyType};

/// Entries of dictionaries, each with the object that it had. They are not copied: a change of a dictionary is noticed.
#[pyclass(frozen, module = "flashcliff._core")]
pub(crate) struct Slots {
    entries: Vec<Entry>,
    /// Dictionaries, and how many entries they had.
    sizes: Vec<(Py<PyDict>, usize)>,
    /// Objects, and the classes that they had.
    kinds: Vec<(Py<PyAny>, Py<PyType>)>,
}

struct Entry {
    owner: Py<PyDict>,
    name: Py<PyString>,
    /// The object that it had; none if there was no entry.
    held: Option<Py<PyAny>>,
}

impl Entry {
    fn find<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.owner.bind(py).get_item(self.name.bind(py))
    }

    /// Whether the entry has the very object that it had.
    fn is_same(&self, py: Python<'_>) -> PyResult<bool> {
        let found = self.find(py)?;
        Ok(match (&found, &self.held) {
            (Some(found), Some(held)) => found.is(held),
            (None, None) => true,
            _ => false,
        })
    }
}

#[pymethods]
impl Slots {
    /// The entries with these names of these dictionaries; dictionaries whose sizes count; objects whose classes count.
    #[new]
    #[pyo3(signature = (owners, names, sizes=Vec::new(), objects=Vec::new()))]
    fn new(
        py: Python<'_>,
        owners: Vec<Py<PyDict>>,
        names: Vec<Py<PyString>>,
        sizes: Vec<Py<PyDict>>,
        objects: Vec<Py<PyAny>>,
    ) -> PyResult<Self> {
        if owners.len() != names.len() {
            return Err(PyValueError::new_err(format!(
                "expected a name for each of {} dictionaries, got {}",
                owners.len(),
                names.len()
            )));
        }
        let entries = owners.into_iter().zip(names).map(|(owner, name)| {
            let held = owner.bind(py).get_item(name.bind(py))?;
            let held = held.map(Bound::unbind);
            Ok(Entry { owner, name, held })
        });
        let with_size = |dict: Py<PyDict>| {
            let size = dict.bind(py).len();
            (dict, size)
        };
        let with_kind = |object: Py<PyAny>| {
            let kind = object.bind(py).get_type().unbind();
            (object, kind)
        };
        Ok(Self {
            entries: entries.collect::<PyResult<_>>()?,
            sizes: sizes.into_iter().map(with_size).collect(),
            kinds: objects.into_iter().map(with_kind).collect(),
        })
    }

    /// Whether all entries have the very objects that they had, all dictionaries their sizes, and all objects their classes.
    fn are_same(&self, py: Python<'_>) -> PyResult<bool> {
        for entry in &self.entries {
            if !entry.is_same(py)? {
                return Ok(false);
            }
        }
        let mut sizes = self.sizes.iter();
        let mut kinds = self.kinds.iter();
        Ok(sizes.all(|(dict, size)| dict.bind(py).len() == *size)
            && kinds.all(|(object, kind)| object.bind(py).get_type().is(kind)))
    }

    /// The objects that the entries have now; `None` where there is no entry.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let found = PyList::empty(py);
        for entry in &self.entries {
            found.append(entry.find(py)?)?;
        }
        Ok(found)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        for entry in &self.entries {
            visit.call(&entry.owner)?;
            visit.call(&entry.held)?;
        }
        for (dict, _) in &self.sizes {
            visit.call(dict)?;
        }
        for (object, kind) in &self.kinds {
            visit.call(object)?;
            visit.call(kind)?;
        }
        Ok(())
    }
}
