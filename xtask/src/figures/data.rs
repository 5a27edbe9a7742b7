//! Measured data: JSON that names its file and place where something is missing.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::Error;

/// A file of data.
pub(super) struct Data {
    path: PathBuf,
    value: Value,
}

/// A place in a file.
#[derive(Clone)]
pub(super) struct Place<'a> {
    path: &'a Path,
    /// The keys from the root, each after a slash.
    at: String,
    value: &'a Value,
}

impl Data {
    pub(super) fn read(results: &Path, name: &str) -> Result<Self, Error> {
        let path = results.join(name);
        let text = fs::read_to_string(&path).map_err(Error::at(&path))?;
        let value = serde_json::from_str(&text).map_err(|source| Error::Data {
            path: path.clone(),
            expected: format!("JSON ({source})"),
        })?;
        Ok(Self { path, value })
    }

    pub(super) fn root(&self) -> Place<'_> {
        Place {
            path: &self.path,
            at: String::new(),
            value: &self.value,
        }
    }

    /// The text of a key of the root.
    pub(super) fn text(&self, key: &str) -> Result<&str, Error> {
        self.root().get(key)?.text()
    }

    /// The number of a key of the root.
    pub(super) fn number(&self, key: &str) -> Result<f64, Error> {
        self.root().get(key)?.number()
    }

    /// The device and the versions of programs, each by its name and its key.
    pub(super) fn machine(&self, device: &str, programs: &[(&str, &str)]) -> Result<String, Error> {
        let mut machine = self.text(device)?.to_owned();
        for (name, key) in programs {
            machine += &format!(", {name} {}", self.text(key)?);
        }
        Ok(machine)
    }
}

impl<'a> Place<'a> {
    /// The value of a key that must be there.
    pub(super) fn get(&self, key: &str) -> Result<Place<'a>, Error> {
        self.find(key)
            .ok_or_else(|| self.lacks(&format!("`{key}`")))
    }

    /// The value of a key, if it is there and not null.
    pub(super) fn find(&self, key: &str) -> Option<Place<'a>> {
        let value = self.value.get(key).filter(|value| !value.is_null())?;
        Some(self.inner(key, value))
    }

    /// The elements of a list.
    pub(super) fn list(&self) -> Result<Vec<Place<'a>>, Error> {
        let list = self.value.as_array().ok_or_else(|| self.lacks("a list"))?;
        let elements = list.iter().enumerate();
        Ok(elements
            .map(|(index, value)| self.inner(&index.to_string(), value))
            .collect())
    }

    /// The entries of an object, by key.
    pub(super) fn entries(&self) -> Result<Vec<(&'a str, Place<'a>)>, Error> {
        let object = self.value.as_object();
        let object = object.ok_or_else(|| self.lacks("an object"))?;
        Ok(object
            .iter()
            .map(|(key, value)| (key.as_str(), self.inner(key, value)))
            .collect())
    }

    pub(super) fn number(&self) -> Result<f64, Error> {
        self.value.as_f64().ok_or_else(|| self.lacks("a number"))
    }

    pub(super) fn truth(&self) -> Result<bool, Error> {
        let lacks = || self.lacks("true or false");
        self.value.as_bool().ok_or_else(lacks)
    }

    /// Whether another place has the same value of a key.
    pub(super) fn agrees(&self, other: &Place<'_>, key: &str) -> bool {
        self.value.get(key) == other.value.get(key)
    }

    /// The numbers of a list.
    pub(super) fn numbers(&self) -> Result<Vec<f64>, Error> {
        self.list()?.iter().map(Place::number).collect()
    }

    pub(super) fn text(&self) -> Result<&'a str, Error> {
        self.value.as_str().ok_or_else(|| self.lacks("a text"))
    }

    /// The element of a list of objects whose `name` is this.
    pub(super) fn named(&self, name: &str) -> Result<Place<'a>, Error> {
        let is_it = |place: &Place<'a>| place.value.get("name") == Some(&Value::from(name));
        let found = self.list()?.into_iter().find(is_it);
        found.ok_or_else(|| self.lacks(&format!("an element with the name `{name}`")))
    }

    /// An error: what was expected here.
    pub(super) fn lacks(&self, what: &str) -> Error {
        let place = match self.at.as_str() {
            "" => String::new(),
            at => format!(" at {at}"),
        };
        Error::Data {
            path: self.path.to_owned(),
            expected: format!("{what}{place}"),
        }
    }

    fn inner(&self, key: &str, value: &'a Value) -> Place<'a> {
        Place {
            path: self.path,
            at: format!("{}/{key}", self.at),
            value,
        }
    }
}
