//! A table in memory, and its JSON form.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::algorithm::Algorithm;
use super::file::FileError;
use super::key::{Gpu, KnobKey};
use super::problem::Problem;

/// The format of files that this version writes. It reads no other format: the keys of format 1 were names of operators.
const FORMAT: u32 = 2;

/// The choices for one GPU: algorithms of cuBLASLt for matrix products, and named whole numbers for passes of
/// operators.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    gpu: Gpu,
    /// The algorithms, by problem and version of cuBLASLt.
    matmul: HashMap<(Problem, usize), MatmulEntry>,
    knobs: HashMap<KnobKey, BTreeMap<String, i64>>,
    /// Entries of a file that this version cannot read, perhaps entries of a newer version: algorithms, then knobs.
    /// They are not used, but they are kept.
    strange: [Vec<Value>; 2],
}

/// The algorithm of a matrix product.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MatmulEntry {
    pub(crate) problem: Problem,
    pub(crate) algorithm: Algorithm,
    /// The measurement that led to the choice. It is information only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) measured: Option<Measured>,
}

/// The median times of a matrix product within its pass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The time of the choice, in microseconds.
    pub microseconds: f64,
    /// The time of the choice that was in use before, in microseconds.
    pub before_microseconds: f64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KnobEntry {
    key: KnobKey,
    values: BTreeMap<String, i64>,
}

/// The form of a table in a file. Each of its entries may be wrong by itself.
#[derive(Serialize, Deserialize)]
struct Stored {
    format: u32,
    gpu: Gpu,
    #[serde(default)]
    matmul: Vec<Value>,
    #[serde(default)]
    knobs: Vec<Value>,
}

impl Table {
    /// An empty table.
    pub fn new(gpu: Gpu) -> Self {
        Self {
            gpu,
            matmul: HashMap::new(),
            knobs: HashMap::new(),
            strange: Default::default(),
        }
    }

    /// The GPU that the table is for.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The number of entries. Each knob of a key counts as one.
    pub fn len(&self) -> usize {
        self.matmul.len() + self.knobs.values().map(BTreeMap::len).sum::<usize>()
    }

    /// Whether the table has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a knob, if the table has one.
    pub fn knob(&self, key: &KnobKey, name: &str) -> Option<i64> {
        self.knobs.get(key)?.get(name).copied()
    }

    /// Sets the value of a knob.
    pub fn set_knob(&mut self, key: KnobKey, name: impl Into<String>, value: i64) {
        self.knobs
            .entry(key)
            .or_default()
            .insert(name.into(), value);
    }

    /// The algorithm of a problem for a version of cuBLASLt.
    pub(crate) fn matmul(&self, problem: &Problem, version: usize) -> Option<&Algorithm> {
        let entry = self.matmul.get(&(*problem, version));
        entry.map(|entry| &entry.algorithm)
    }

    /// All algorithms, in no particular order.
    pub(crate) fn algorithms(&self) -> impl Iterator<Item = &MatmulEntry> {
        self.matmul.values()
    }

    /// Sets the algorithm of a matrix product for the version of cuBLASLt that it belongs to. The measurement is kept as
    /// information; nothing depends on it.
    pub fn set_algorithm(
        &mut self,
        problem: Problem,
        algorithm: Algorithm,
        measured: Option<Measured>,
    ) {
        self.set_matmul(MatmulEntry {
            problem,
            algorithm,
            measured,
        });
    }

    pub(super) fn set_matmul(&mut self, entry: MatmulEntry) {
        let key = (entry.problem, entry.algorithm.cublaslt);
        self.matmul.insert(key, entry);
    }

    /// Adds all entries of another table, which replace the entries of this one.
    pub fn merge(&mut self, other: Self) {
        for (own, others) in self.strange.iter_mut().zip(other.strange) {
            for entry in others {
                if !own.contains(&entry) {
                    own.push(entry);
                }
            }
        }
        self.matmul.extend(other.matmul);
        for (key, values) in other.knobs {
            self.knobs.entry(key).or_default().extend(values);
        }
    }

    /// The table as JSON. Equal tables give equal text.
    pub fn to_json(&self) -> String {
        fn sorted(entries: impl Iterator<Item = impl Serialize>, strange: &[Value]) -> Vec<Value> {
            let entries = entries
                .map(|entry| serde_json::to_value(entry).expect("names and numbers are JSON"));
            let mut entries: Vec<Value> = entries.chain(strange.iter().cloned()).collect();
            entries.sort_by_cached_key(Value::to_string);
            entries
        }
        let knobs = self.knobs.iter().map(|(key, values)| KnobEntry {
            key: key.clone(),
            values: values.clone(),
        });
        let stored = Stored {
            format: FORMAT,
            gpu: self.gpu.clone(),
            matmul: sorted(self.matmul.values(), &self.strange[0]),
            knobs: sorted(knobs, &self.strange[1]),
        };
        let text = serde_json::to_string_pretty(&stored).expect("names and numbers are JSON");
        text + "\n"
    }

    /// Reads a table. Also returns the reasons why some of its entries are not valid.
    ///
    /// # Errors
    /// [`FileError::NotATable`], [`FileError::Format`].
    pub fn from_json(text: &str) -> Result<(Self, Vec<String>), FileError> {
        let not_a_table = |error: serde_json::Error| FileError::NotATable {
            reason: error.to_string(),
        };
        let value: Value = serde_json::from_str(text).map_err(not_a_table)?;
        match value.get("format") {
            Some(format) if *format != FORMAT => {
                return Err(FileError::Format {
                    expected: FORMAT,
                    got: format.to_string(),
                });
            }
            _ => {}
        }
        let stored: Stored = serde_json::from_value(value).map_err(not_a_table)?;
        let mut table = Self::new(stored.gpu);
        let mut wrong = Vec::new();
        for (index, entry) in stored.matmul.into_iter().enumerate() {
            match MatmulEntry::deserialize(&entry) {
                Ok(entry) => table.set_matmul(entry),
                Err(error) => {
                    wrong.push(format!("matmul[{index}]: {error}"));
                    table.strange[0].push(entry);
                }
            }
        }
        for (index, entry) in stored.knobs.into_iter().enumerate() {
            match KnobEntry::deserialize(&entry) {
                Ok(entry) => table
                    .knobs
                    .entry(entry.key)
                    .or_default()
                    .extend(entry.values),
                Err(error) => {
                    wrong.push(format!("knobs[{index}]: {error}"));
                    table.strange[1].push(entry);
                }
            }
        }
        Ok((table, wrong))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{Configuration, Form, MatmulPrecision};
    use super::*;
    use crate::{Dtype, Pass};

    pub(crate) fn gpu() -> Gpu {
        Gpu {
            name: "NVIDIA Test".to_owned(),
            compute_capability: (9, 0),
        }
    }

    pub(crate) fn problem(m: usize) -> Problem {
        Problem {
            form: Form::TimesTranspose,
            m,
            n: 8,
            k: 24,
            parts: 3,
            strides: [1, 2, 3],
            operands: Dtype::Bf16,
            result: Dtype::F32,
            precision: MatmulPrecision::Tf32,
            bias: Some(0),
            alignment: [256, 16, 4],
        }
    }

    pub(crate) fn entry(m: usize, first: u64) -> MatmulEntry {
        MatmulEntry {
            problem: problem(m),
            algorithm: Algorithm {
                cublaslt: 130_100,
                data: [first, 0, 0, 0, 0, 0, 0, 9],
                configuration: Configuration::default(),
            },
            measured: None,
        }
    }

    pub(crate) fn knob(batch: usize) -> KnobKey {
        KnobKey {
            grades: vec![[1, 4], [3, 6]],
            pass: Pass::Backward,
            dtype: Dtype::F16,
            precision: MatmulPrecision::Highest,
            batch,
            in_channels: 5,
            out_channels: 6,
        }
    }

    fn some() -> Table {
        let mut table = Table::new(gpu());
        for m in [7, 100, 3] {
            table.set_matmul(entry(m, m as u64));
        }
        for batch in [12, 2] {
            table.set_knob(knob(batch), "rows", batch as i64);
            table.set_knob(knob(batch), "form", -1);
        }
        table
    }

    #[test]
    fn a_file_gives_back_the_table() {
        let text = some().to_json();
        let (table, wrong) = Table::from_json(&text).unwrap();
        assert_eq!((table, wrong), (some(), vec![]));
        assert_eq!(some().len(), 7);
        for part in ["times_transpose", "bf16", "tf32", "grades", "backward"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn the_text_does_not_depend_on_the_order_of_insertion() {
        let mut other = Table::new(gpu());
        other.set_knob(knob(2), "form", -1);
        other.set_knob(knob(2), "rows", 2);
        for m in [3, 7, 100] {
            other.set_matmul(entry(m, m as u64));
        }
        other.set_knob(knob(12), "form", -1);
        other.set_knob(knob(12), "rows", 12);
        assert_eq!(other.to_json(), some().to_json());
    }

    #[test]
    fn every_field_of_a_key_counts() {
        let table = some();
        let found = |problem: &Problem| table.matmul(problem, 130_100).is_some();
        let known = problem(7);
        assert!(found(&known));
        assert!(table.matmul(&known, 130_101).is_none());
        let others: [fn(&mut Problem); 11] = [
            |own| own.form = Form::Times,
            |own| own.m = 8,
            |own| own.n = 9,
            |own| own.k = 25,
            |own| own.parts = 4,
            |own| own.strides = [1, 2, 4],
            |own| own.operands = Dtype::F16,
            |own| own.result = Dtype::Bf16,
            |own| own.precision = MatmulPrecision::Highest,
            |own| own.bias = None,
            |own| own.alignment = [256, 16, 8],
        ];
        for change in others {
            let mut other = known;
            change(&mut other);
            assert!(!found(&other), "{other:?}");
        }
        assert_eq!(table.knob(&knob(2), "rows"), Some(2));
        assert_eq!(table.knob(&knob(2), "columns"), None);
        let others: [fn(&mut KnobKey); 8] = [
            |own| own.grades = vec![[1, 4]],
            |own| own.grades = vec![[1, 4], [3, 5]],
            |own| own.pass = Pass::Forward,
            |own| own.dtype = Dtype::F32,
            |own| own.precision = MatmulPrecision::Tf32,
            |own| own.batch = 3,
            |own| own.in_channels = 6,
            |own| own.out_channels = 5,
        ];
        for change in others {
            let mut other = knob(2);
            change(&mut other);
            assert_eq!(table.knob(&other, "rows"), None, "{other:?}");
        }
    }

    #[test]
    fn merging_keeps_what_is_not_replaced() {
        let mut table = some();
        let mut newer = Table::new(gpu());
        newer.set_matmul(entry(7, 77));
        newer.set_matmul(entry(8, 8));
        newer.set_knob(knob(2), "rows", 64);
        table.merge(newer);
        let data = |m| table.matmul(&problem(m), 130_100).map(|a| a.data[0]);
        assert_eq!([3, 7, 8].map(data), [Some(3), Some(77), Some(8)]);
        assert_eq!(table.knob(&knob(2), "rows"), Some(64));
        assert_eq!(table.knob(&knob(2), "form"), Some(-1));
    }

    #[test]
    fn versions_of_cublaslt_live_side_by_side() {
        let mut table = some();
        let mut newer = entry(7, 70);
        newer.algorithm.cublaslt = 130_200;
        table.set_matmul(newer);
        let data = |version| table.matmul(&problem(7), version).map(|a| a.data[0]);
        assert_eq!([130_100, 130_200].map(data), [Some(7), Some(70)]);
    }

    #[test]
    fn a_wrong_entry_does_not_take_the_others_along() {
        let mut value: Value = serde_json::from_str(&some().to_json()).unwrap();
        value["matmul"][1]["problem"]["operands"] = "f8".into();
        value["matmul"][2]["algorithm"]["checksum"] = "0".into();
        value["knobs"][0]["key"]["grades"] = "none".into();
        let (table, wrong) = Table::from_json(&value.to_string()).unwrap();
        assert_eq!(table.len(), 3);
        // Unknown entries remain when the table is written again, and when it is merged into another.
        let mut merged = Table::new(gpu());
        merged.merge(table.clone());
        merged.merge(table.clone());
        for text in [table.to_json(), merged.to_json()] {
            assert_eq!(text.matches("f8").count(), 1, "{text}");
            assert_eq!(Table::from_json(&text).unwrap().1.len(), 3);
        }
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        assert!(wrong[0].contains("matmul[1]") && wrong[0].contains("f8"));
        assert!(wrong[1].contains("checksum"), "{wrong:?}");
        assert!(wrong[2].contains("knobs[0]"), "{wrong:?}");
    }

    #[test]
    fn what_is_no_table_is_an_error_that_says_why() {
        for text in ["", "{", "[]", "3", "{}", r#"{"format": 2}"#, "\u{0}"] {
            let error = Table::from_json(text).unwrap_err();
            assert!(matches!(error, FileError::NotATable { .. }), "{text}");
        }
        for other in [1, 3] {
            let text = some().to_json();
            let text = text.replace("\"format\": 2", &format!("\"format\": {other}"));
            let message = Table::from_json(&text).unwrap_err().to_string();
            let parts = ["format 2", &format!("format {other}"), "tune --clear"];
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
    }
}
