//! The tables of a device: the user's table comes before the built-in one.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use super::algorithm::Algorithm;
use super::entries::Table;
use super::file::{self, FileError};
use super::key::{Gpu, KnobKey};
use super::place::Place;
use super::problem::Problem;

/// The built-in tables, measured on these GPUs.
const BUILT_IN: &[&str] = &[
    include_str!("tables/nvidia-h100-80gb-hbm3.json"),
    include_str!("tables/nvidia-h200.json"),
];

/// The origin of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The file of the user.
    User,
    /// The table that is built into the library.
    BuiltIn,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::User => "user",
            Self::BuiltIn => "built-in",
        })
    }
}

/// An entry that is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// The origin of the entry.
    pub source: Source,
    /// The problem of the entry, and the reason why it is not used.
    pub reason: String,
}

/// The state of the file of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileState {
    /// The file is not to be read.
    Off,
    /// There is no file.
    Missing,
    /// The file was read.
    Read {
        /// The number of entries of the file.
        entries: usize,
    },
    /// The file is broken, and treated as missing.
    Broken(FileError),
}

/// The tuning tables of a device. They are read once, when the device is opened. No mistake in them stops a program:
/// wrong entries are not used, and [`Self::ignored`] lists them.
#[derive(Debug)]
pub struct Tables {
    gpu: Gpu,
    place: Place,
    state: FileState,
    layers: Vec<(Source, Table)>,
    ignored: Mutex<Vec<Ignored>>,
}

impl Tables {
    /// Reads the tables of a GPU.
    pub fn read(gpu: Gpu, place: Place) -> Self {
        Self::over(gpu, place, BUILT_IN)
    }

    fn over(gpu: Gpu, place: Place, built_in: &[&str]) -> Self {
        let mut layers = Vec::new();
        let mut ignored = Vec::new();
        let mut add = |source, table: Table, wrong: Vec<String>| {
            layers.push((source, table));
            ignored.extend(wrong.into_iter().map(|reason| Ignored { source, reason }));
        };
        let state = match (place.user, place.needed_file(&gpu)) {
            (false, _) => FileState::Off,
            (true, Err(error)) => FileState::Broken(error),
            (true, Ok(path)) => match file::read(&path, &gpu) {
                Ok(Some((table, wrong))) => {
                    let entries = table.len();
                    add(Source::User, table, wrong);
                    FileState::Read { entries }
                }
                Ok(None) => FileState::Missing,
                Err(error) => FileState::Broken(error),
            },
        };
        let built_in = if place.builtin { built_in } else { &[] };
        for text in built_in {
            // Unit tests check the built-in tables; a library must not fail because of its table.
            match Table::from_json(text) {
                Ok((table, wrong)) if *table.gpu() == gpu => add(Source::BuiltIn, table, wrong),
                _ => {}
            }
        }
        Self {
            gpu,
            place,
            state,
            layers,
            ignored: Mutex::new(ignored),
        }
    }

    /// The GPU.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The place of the user's table, and which tables are read.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The path of the user's file, whether or not the file exists.
    pub fn file(&self) -> Option<PathBuf> {
        self.place.file(&self.gpu)
    }

    /// The state of the user's file.
    pub fn file_state(&self) -> &FileState {
        &self.state
    }

    /// The number of entries of the built-in table for the GPU. `None` if there is no such table or it is not to be
    /// read.
    pub fn built_in_entries(&self) -> Option<usize> {
        let mut layers = self.layers.iter();
        let found = layers.find(|(source, _)| *source == Source::BuiltIn);
        found.map(|(_, table)| table.len())
    }

    /// The value of a knob of a pass, from the first table that has it.
    pub fn knob(&self, key: &KnobKey, name: &str) -> Option<i64> {
        let mut layers = self.layers.iter();
        layers.find_map(|(_, table)| table.knob(key, name))
    }

    /// The first algorithm for a problem that `check` accepts, as the value that `check` makes of it. Refused algorithms
    /// are remembered as ignored, with the reason.
    pub(crate) fn algorithm<T>(
        &self,
        problem: &Problem,
        version: usize,
        mut check: impl FnMut(&Algorithm) -> Result<T, String>,
    ) -> Option<T> {
        for (source, table) in &self.layers {
            let Some(algorithm) = table.matmul(problem, version) else {
                continue;
            };
            match check(algorithm) {
                Ok(checked) => return Some(checked),
                Err(reason) => self.ignore(*source, problem, &reason),
            }
        }
        None
    }

    /// All algorithms, with their origin.
    pub(crate) fn algorithms(&self) -> impl Iterator<Item = (Source, &Problem, &Algorithm)> {
        self.layers.iter().flat_map(|(source, table)| {
            let entries = table.algorithms();
            entries.map(move |entry| (*source, &entry.problem, &entry.algorithm))
        })
    }

    /// Remembers that an entry is not used.
    pub(crate) fn ignore(&self, source: Source, problem: &Problem, reason: &str) {
        let entry = Ignored {
            source,
            reason: format!("matmul {problem}: {reason}"),
        };
        // The data that the lock guards is whole even after a panic.
        let mut ignored = self.ignored.lock().unwrap_or_else(PoisonError::into_inner);
        if !ignored.contains(&entry) {
            ignored.push(entry);
        }
    }

    /// The entries that are known not to be used: those that could not be read, and those that were looked up and found
    /// invalid. See [`check`](crate::cuda::tuning::check).
    pub fn ignored(&self) -> Vec<Ignored> {
        let ignored = self.ignored.lock().unwrap_or_else(PoisonError::into_inner);
        ignored.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::MatmulPrecision;
    use super::super::entries::tests::{entry, gpu, knob, problem};
    use super::*;
    use crate::{Dtype, Pass};

    fn table(first: u64, rows: i64, others: &[usize]) -> Table {
        let mut table = Table::new(gpu());
        table.set_matmul(entry(1, first));
        for m in others {
            table.set_matmul(entry(*m, first));
        }
        table.set_knob(knob(1), "rows", rows);
        table
    }

    /// The choice of the tables for a problem, if some are refused.
    fn asked(tables: &Tables, m: usize, refused: &[u64]) -> Option<u64> {
        tables.algorithm(&problem(m), 130_100, |algorithm| {
            let first = algorithm.data[0];
            match refused.contains(&first) {
                true => Err(format!("{first} is refused")),
                false => Ok(first),
            }
        })
    }

    #[test]
    fn the_user_comes_first_then_what_is_built_in_then_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::folder(folder.path());
        let path = place.file(&gpu()).unwrap();
        file::save(&path, &table(1, 10, &[2])).unwrap();
        let mut built_in = table(3, 30, &[4]);
        built_in.set_knob(knob(1), "form", 7);
        let other = Table::new(Gpu {
            name: "another".to_owned(),
            compute_capability: (9, 0),
        });
        let built_in = [other.to_json(), built_in.to_json()];
        let built_in: Vec<&str> = built_in.iter().map(String::as_str).collect();
        let tables = |place| Tables::over(gpu(), place, &built_in);

        let both = tables(place.clone());
        assert_eq!(*both.file_state(), FileState::Read { entries: 3 });
        assert_eq!(both.built_in_entries(), Some(4));
        let answers = [1, 2, 4, 5].map(|m| asked(&both, m, &[]));
        assert_eq!(answers, [Some(1), Some(1), Some(3), None]);
        assert_eq!(both.knob(&knob(1), "rows"), Some(10));
        assert_eq!(both.knob(&knob(1), "form"), Some(7));
        assert_eq!(both.knob(&knob(2), "form"), None);
        assert_eq!(both.algorithms().count(), 4);
        assert_eq!(both.ignored(), []);

        let without_user = tables(Place {
            user: false,
            ..place.clone()
        });
        assert_eq!(*without_user.file_state(), FileState::Off);
        assert_eq!(asked(&without_user, 1, &[]), Some(3));
        assert_eq!(asked(&without_user, 2, &[]), None);
        let without_any = tables(Place::none());
        assert_eq!(asked(&without_any, 1, &[]), None);
        assert_eq!(without_any.built_in_entries(), None);
    }

    #[test]
    fn an_invalid_entry_falls_back_and_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::folder(folder.path());
        file::save(&place.file(&gpu()).unwrap(), &table(1, 10, &[2])).unwrap();
        let built_in = table(3, 30, &[]).to_json();
        let tables = Tables::over(gpu(), place, &[&built_in]);
        assert_eq!(asked(&tables, 1, &[1]), Some(3));
        assert_eq!(asked(&tables, 1, &[1, 3]), None);
        assert_eq!(asked(&tables, 2, &[1]), None);
        let ignored = tables.ignored();
        let sources: Vec<Source> = ignored.iter().map(|ignored| ignored.source).collect();
        assert_eq!(sources, [Source::User, Source::BuiltIn, Source::User]);
        assert!(ignored[0].reason.contains("1 is refused"), "{ignored:?}");
    }

    #[test]
    fn a_broken_file_is_a_state() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::folder(folder.path());
        assert_eq!(
            *Tables::over(gpu(), place.clone(), &[]).file_state(),
            FileState::Missing
        );
        std::fs::write(place.file(&gpu()).unwrap(), "{").unwrap();
        let tables = Tables::over(gpu(), place, &[]);
        assert!(matches!(
            tables.file_state(),
            FileState::Broken(FileError::NotATable { .. })
        ));
        assert_eq!(asked(&tables, 1, &[]), None);
        let nowhere = Place {
            user: true,
            ..Place::none()
        };
        assert!(matches!(
            Tables::over(gpu(), nowhere, &[]).file_state(),
            FileState::Broken(FileError::NoFolder { .. })
        ));
    }

    /// The sizes of all grades of the fully connected product, as the keys of knobs have them.
    fn all_grades(signature: cayley::Signature) -> Vec<[usize; 2]> {
        let algebra = cayley::Algebra::new(signature);
        let paths = algebra.paths();
        let of_grade = |grade| {
            let to_grade = paths.iter().filter(|path| path.output == grade);
            [algebra.grade_range(grade).len(), to_grade.count()]
        };
        let mut grades: Vec<_> = (0..=algebra.dim()).map(of_grade).collect();
        grades.sort_unstable();
        grades
    }

    /// What the built-in tables held while their keys were names: `fcgp_norm` of cl300 had blocks of 512 MiB, for a GPU, a batch, channels,
    /// types and passes.
    #[test]
    fn entries_that_had_names_are_found_by_their_products() {
        let (highest, tf32) = (MatmulPrecision::Highest, MatmulPrecision::Tf32);
        let named = [
            (
                "NVIDIA H100 80GB HBM3",
                4096,
                1024,
                Dtype::Bf16,
                highest,
                Pass::Backward,
            ),
            (
                "NVIDIA H100 80GB HBM3",
                8192,
                512,
                Dtype::Bf16,
                highest,
                Pass::Forward,
            ),
            (
                "NVIDIA H200",
                4096,
                1024,
                Dtype::Bf16,
                highest,
                Pass::Backward,
            ),
            ("NVIDIA H200", 4096, 1024, Dtype::F32, tf32, Pass::Backward),
            (
                "NVIDIA H200",
                8192,
                512,
                Dtype::Bf16,
                highest,
                Pass::Forward,
            ),
            ("NVIDIA H200", 8192, 512, Dtype::F32, tf32, Pass::Forward),
        ];
        let grades = all_grades(cayley::Signature::of(3, 0, 0));
        for (name, batch, channels, dtype, precision, pass) in named {
            let gpu = Gpu {
                name: name.to_owned(),
                compute_capability: (9, 0),
            };
            let place = Place {
                builtin: true,
                ..Place::none()
            };
            let key = KnobKey {
                grades: grades.clone(),
                pass,
                dtype,
                precision,
                batch,
                in_channels: channels,
                out_channels: channels,
            };
            let tables = Tables::read(gpu, place);
            assert_eq!(tables.knob(&key, "block_mib"), Some(512), "{name} {key:?}");
        }
        let knobs = BUILT_IN.iter().map(|text| {
            let table = Table::from_json(text).unwrap().0;
            table.len() - table.algorithms().count()
        });
        assert_eq!(knobs.sum::<usize>(), named.len());
    }

    #[test]
    fn the_built_in_tables_are_tables() {
        let mut names = Vec::new();
        for text in BUILT_IN {
            let (table, wrong) = Table::from_json(text).unwrap();
            assert_eq!(wrong, Vec::<String>::new());
            assert_eq!(table.to_json(), *text, "not as the library writes it");
            let gpu = table.gpu().clone();
            let tables = Tables::read(
                gpu.clone(),
                Place {
                    builtin: true,
                    ..Place::none()
                },
            );
            assert_eq!(tables.built_in_entries(), Some(table.len()));
            names.push(gpu.name);
        }
        names.dedup();
        assert_eq!(names.len(), BUILT_IN.len());
    }
}
