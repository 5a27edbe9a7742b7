//! Measured data: JSON that names its file and place where something is missing.

use std::fmt::Display;
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

    fn name(&self) -> impl Display {
        self.path.file_name().unwrap_or_default().display()
    }

    /// A link from the page to the file.
    pub(super) fn link(&self) -> String {
        format!("[{name}](results/{name})", name = self.name())
    }

    /// The link, and the commit that was measured.
    pub(super) fn link_and_commit(&self) -> Result<String, Error> {
        Ok(format!(
            "{}, of commit {}",
            self.link(),
            self.text("commit")?
        ))
    }

    /// The paragraph of the data, their machine and their command.
    ///
    /// The last option of the command is the name of the file.
    pub(super) fn source(&self, data: &str, machine: &str, command: &str) -> String {
        source(data, machine, &format!("{command} --out {}", self.name()))
    }

    /// The same, with the commit.
    pub(super) fn source_with_commit(&self, machine: &str, command: &str) -> Result<String, Error> {
        Ok(self.source(&self.link_and_commit()?, machine, command))
    }

    /// The text of a key of the root, and the versions of programs, each by its name and its key.
    pub(super) fn machine(&self, device: &str, programs: &[(&str, &str)]) -> Result<String, Error> {
        Ok(self.text(device)?.to_owned() + &self.root().versions(programs)?)
    }

    /// The GPU and versions of programs of the object `machine`, with its commit.
    pub(super) fn machine_and_commit(&self, programs: &[(&str, &str)]) -> Result<String, Error> {
        let machine = self.root().get("machine")?;
        let [gpu, commit] = ["gpu", "commit"].map(|key| machine.get(key)?.text());
        let versions = machine.versions(programs)?;
        Ok(format!("{}{versions}. Commit: {}", gpu?, commit?))
    }

    /// The names and versions of the packages.
    pub(super) fn packages(&self) -> Result<Vec<(&str, String)>, Error> {
        let packages = self.root().get("packages")?.entries()?.into_iter();
        let shown =
            |(name, version): (_, Place<'_>)| Ok((name, format!("{name} {}", version.text()?)));
        packages.map(shown).collect()
    }
}

/// The paragraph that names the data of a section, their machine and the command that made them.
pub(super) fn source(data: &str, machine: &str, command: &str) -> String {
    format!("Data: {data}. Machine: {machine}. Command:\n\n```sh\n{command}\n```\n")
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

    /// The versions of programs, each after a comma.
    pub(super) fn versions(&self, programs: &[(&str, &str)]) -> Result<String, Error> {
        let shown = |(name, key): &(&str, &str)| Ok(format!(", {name} {}", self.get(key)?.text()?));
        programs.iter().map(shown).collect()
    }

    /// Two sizes, by their keys.
    pub(super) fn shape(&self, keys: [&str; 2]) -> Result<String, Error> {
        let [rows, columns] = keys.map(|key| self.get(key)?.number());
        Ok(format!("{} x {}", rows?, columns?))
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
