//! Which cases to measure.

use cayley::Signature;
use flashcliff::ops::TABLE;
use flashcliff::{Dims, Dtype};

use crate::{Case, Error, Form, Passes};

/// Which operators, in which algebras, at which sizes. An empty list stands for the usual choice.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The names of operators.
    pub operators: Vec<String>,
    /// The algebras.
    pub algebras: Vec<Signature>,
    /// The sizes.
    pub shapes: Vec<Dims>,
    /// The types.
    pub dtypes: Vec<Dtype>,
    /// Whether sizes that are not given are small.
    pub quick: bool,
    /// Whether the usual choice is that of a GPU.
    pub gpu: bool,
}

const CL200: Signature = Signature::of(2, 0, 0);
const CL300: Signature = Signature::of(3, 0, 0);
const CL500: Signature = Signature::of(5, 0, 0);

/// The size at which every operator is measured, unless that is too much work.
const USUAL: Dims = square(4096, 128);
/// The largest number of operations of a forward pass of the usual size. Operators that do more have a smaller size.
const WORK: usize = 1_100_000_000;

/// Further cases in f32, beside every operator at its usual size: the sizes of published tables, 32 blades, and the interpreter.
const FURTHER: [(&str, Signature, Dims, bool); 6] = [
    ("sgp_norm", CL300, square(4096, 512), false),
    ("sgp_norm", CL200, square(4096, 512), false),
    ("steerable_product", CL500, square(2048, 64), false),
    ("sgp_norm", CL300, square(4096, 512), true),
    // This case is compiled too, to compare the interpreted one with it.
    ("sgp_norm", CL500, square(4096, 64), false),
    ("sgp_norm", CL500, square(4096, 64), true),
];

/// The usual choice on a GPU: what keeps one busy, and further cases in f32 with launches that take longer than the work.
const USUAL_ON_GPU: Dims = square(4096, 512);
const WORK_ON_GPU: usize = 200_000_000_000;
const FURTHER_ON_GPU: [(&str, Signature, Dims, bool); 3] = [
    ("sgp_norm", CL200, square(4096, 512), false),
    ("sgp_norm", CL300, square(1024, 128), false),
    ("sgp_norm", CL300, square(256, 64), false),
];

/// As many channels of the output as of the input.
pub(crate) const fn square(batch: usize, channels: usize) -> Dims {
    Dims {
        batch,
        in_channels: channels,
        out_channels: channels,
        scalar_channels: 0,
    }
}

impl Selection {
    /// The cases, each once for every pass and type.
    ///
    /// # Errors
    /// [`Error::UnknownOperator`]; the errors of the library for algebras and sizes.
    pub fn cases(&self) -> Result<Vec<Case>, Error> {
        let names = || TABLE.iter().map(|operator| operator.name);
        if let Some(got) = self
            .operators
            .iter()
            .find(|name| names().all(|n| n != **name))
        {
            return Err(Error::UnknownOperator {
                expected: names().collect::<Vec<_>>().join(", "),
                got: got.clone(),
            });
        }
        let wanted =
            |name: &str| self.operators.is_empty() || self.operators.iter().any(|n| n == name);
        let usual = |list: &[Signature]| match list {
            [] => vec![CL300],
            list => list.to_vec(),
        };
        let mut cases = Vec::new();
        for name in names().filter(|name| wanted(name)) {
            for signature in usual(&self.algebras) {
                let mut shapes = self.shapes.clone();
                if shapes.is_empty() {
                    shapes.push(self.smaller(usual_size(name, signature, self.gpu)?));
                }
                for dims in shapes {
                    self.add(&mut cases, name, signature, dims, false, false)?;
                }
            }
        }
        if self.algebras.is_empty() && self.shapes.is_empty() {
            cases.extend(allocating(&cases));
            let further = match self.gpu {
                true => &FURTHER_ON_GPU[..],
                false => &FURTHER[..],
            };
            for &(name, signature, dims, is_interpreted) in further {
                if wanted(name) {
                    let dims = self.smaller(dims);
                    self.add(&mut cases, name, signature, dims, is_interpreted, true)?;
                }
            }
        }
        Ok(cases)
    }

    fn add(
        &self,
        cases: &mut Vec<Case>,
        operator: &'static str,
        signature: Signature,
        dims: Dims,
        is_interpreted: bool,
        further: bool,
    ) -> Result<(), Error> {
        let dtypes = match &self.dtypes[..] {
            [] if further => &[Dtype::F32][..],
            [] if self.gpu => &[Dtype::F32, Dtype::Bf16][..],
            [] => &[Dtype::F32, Dtype::F64][..],
            list => list,
        };
        for &dtype in dtypes {
            for passes in Passes::ALL {
                let mut case = Case {
                    is_interpreted,
                    ..Case::new(operator, signature, dtype, passes, dims)
                };
                case.dims = bound(&case)?;
                if !cases.contains(&case) {
                    cases.push(case);
                }
            }
        }
        Ok(())
    }

    /// A size, or one that takes little time.
    fn smaller(&self, dims: Dims) -> Dims {
        match self.quick {
            true => square(dims.batch.div_ceil(32), dims.in_channels.div_ceil(8)),
            false => dims,
        }
    }
}

/// The cases of f32 and both passes again, as calls that make what they write. They come where no algebra and no size is chosen.
fn allocating(cases: &[Case]) -> Vec<Case> {
    let is_own = |case: &&Case| case.dtype == Dtype::F32 && case.passes == Passes::Both;
    let own = cases.iter().filter(is_own).cloned();
    let made = own.map(|case| Case {
        form: Form::Made,
        ..case
    });
    made.collect()
}

/// The sizes of a case as the operator understands them: one without channels of the output has as many as of the input.
fn bound(case: &Case) -> Result<Dims, Error> {
    let operator = case.bind()?;
    let shapes = operator.inputs().iter().map(|spec| spec.shape(&case.dims));
    let shapes: Vec<Vec<usize>> = shapes.collect();
    let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
    Ok(operator.bind(&shapes)?)
}

/// The usual size on a device, or the largest smaller one that is not too much work.
fn usual_size(operator: &'static str, signature: Signature, gpu: bool) -> Result<Dims, Error> {
    let (usual, work) = match gpu {
        true => (USUAL_ON_GPU, WORK_ON_GPU),
        false => (USUAL, WORK),
    };
    let case = Case::new(operator, signature, Dtype::F32, Passes::Forward, usual);
    let bound = case.bind()?;
    let mut dims = usual;
    while bound.cost(&dims).forward > work && dims.batch > dims.in_channels {
        dims = match dims.batch / dims.in_channels > usual.batch / usual.in_channels {
            true => square(dims.batch / 2, dims.in_channels),
            false => square(dims.batch / 2, dims.in_channels / 2),
        };
    }
    Ok(dims)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operator_of_the_table_is_measured_in_both_types_and_passes() {
        let cases = Selection::default().cases().unwrap();
        for operator in TABLE {
            for dtype in [Dtype::F32, Dtype::F64] {
                for passes in Passes::ALL {
                    let found = cases.iter().filter(|case| {
                        (case.operator, case.dtype, case.passes) == (operator.name, dtype, passes)
                    });
                    assert!(found.count() >= 1, "{} {dtype}", operator.name);
                }
            }
        }
        let mut names: Vec<String> = cases.iter().map(Case::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), cases.len());
    }

    #[test]
    fn every_operator_also_makes_what_it_writes() {
        let made = |shapes: &[Dims]| {
            let selection = Selection {
                shapes: shapes.to_vec(),
                ..Selection::default()
            };
            let cases = selection.cases().unwrap();
            let made = cases.into_iter().filter(|case| case.form == Form::Made);
            made.map(|case| case.operator).collect::<Vec<_>>()
        };
        let names: Vec<&str> = TABLE.iter().map(|operator| operator.name).collect();
        assert_eq!(made(&[]), names);
        assert!(made(&[square(4, 4)]).is_empty());
    }

    #[test]
    fn a_gpu_has_larger_cases_and_types_of_its_own() {
        let gpu = Selection {
            gpu: true,
            ..Selection::default()
        };
        let cases = gpu.cases().unwrap();
        for operator in TABLE {
            for dtype in [Dtype::F32, Dtype::Bf16] {
                let is_own = |case: &&Case| (case.operator, case.dtype) == (operator.name, dtype);
                let largest = cases
                    .iter()
                    .filter(is_own)
                    .map(|case| case.dims.batch)
                    .max();
                assert!(largest.unwrap() >= 1024, "{} {dtype}", operator.name);
            }
        }
        assert!(cases.iter().all(|case| !case.is_interpreted));
    }

    #[test]
    fn usual_sizes_are_bounded_by_work() {
        for case in Selection::default().cases().unwrap() {
            if case.signature == CL300 && case.dims != square(4096, 512) {
                let cost = case.bind().unwrap().cost(&case.dims);
                assert!(cost.forward <= WORK, "{}", case.name());
            }
        }
    }

    #[test]
    fn choices_narrow_the_cases() {
        let selection = Selection {
            operators: vec!["norm".to_owned(), "fcgp_norm".to_owned()],
            algebras: vec![CL200, Signature::of(3, 0, 1)],
            shapes: vec![Dims {
                batch: 7,
                in_channels: 5,
                out_channels: 3,
                scalar_channels: 0,
            }],
            dtypes: vec![Dtype::F64],
            ..Selection::default()
        };
        let names: Vec<String> = selection.cases().unwrap().iter().map(Case::name).collect();
        assert_eq!(
            names,
            [
                "fcgp_norm cl200 7x5->3 f64 forward",
                "fcgp_norm cl200 7x5->3 f64 forward+backward",
                "fcgp_norm cl301 7x5->3 f64 forward",
                "fcgp_norm cl301 7x5->3 f64 forward+backward",
                "norm cl200 7x5 f64 forward",
                "norm cl200 7x5 f64 forward+backward",
                "norm cl301 7x5 f64 forward",
                "norm cl301 7x5 f64 forward+backward",
            ]
        );
        let unknown = Selection {
            operators: vec!["sgp".to_owned()],
            ..Selection::default()
        };
        let error = unknown.cases().unwrap_err().to_string();
        assert!(
            error.contains("`sgp`") && error.contains("undual"),
            "{error}"
        );
    }
}
