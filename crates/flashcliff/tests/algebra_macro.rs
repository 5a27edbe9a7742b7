//! Tests of `flashcliff::algebra!`: the kernels that it compiles in this crate are found, and give the bits of interpreted
//! programs.

#![forbid(unsafe_code)]

use std::thread;

use flashcliff::{Algebra, Dims, Element, Error, Operator, Tensor, TensorSpec, algebra, ops};

/// An algebra whose kernels are in this crate.
fn compiled_here() -> Algebra {
    algebra!(2, 1, 0)
}

/// A tensor that owns its elements.
struct Values<T> {
    data: Vec<T>,
    shape: Vec<usize>,
}

/// A tensor of an operator, filled with numbers between -1 and 1 that depend on `seed` only.
fn numbers<T: Element>(spec: &TensorSpec, dims: &Dims, seed: u64) -> Result<Values<T>, Error> {
    let shape = spec.shape(dims);
    let mut state = seed;
    let data = (0..shape.iter().product()).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        T::from_f64((state >> 40) as f64 / f64::from(1 << 23) - 1.0)
    });
    Ok(Values {
        data: data.collect(),
        shape,
    })
}

impl<T: Element> Values<T> {
    fn tensor(&self) -> Result<Tensor<'_, T>, Error> {
        Tensor::new(&self.data, &self.shape)
    }
}

/// The bits of the output and of all gradients.
fn bits<T: Element>(operator: &Operator, dims: &Dims) -> Result<Vec<u64>, Error> {
    let seeds = 1..;
    let inputs = operator.inputs().iter().zip(seeds);
    let inputs = inputs.map(|(spec, seed)| numbers::<T>(spec, dims, seed));
    let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
    let tensors = inputs.iter().map(Values::tensor);
    let tensors = tensors.collect::<Result<Vec<_>, _>>()?;
    let evaluation = operator.evaluate(&tensors)?;
    let grad_output = numbers::<T>(operator.output(), dims, 0)?;
    let gradients = operator.gradients(&tensors, &evaluation, grad_output.tensor()?)?;
    let all = evaluation.output.iter().chain(gradients.iter().flatten());
    Ok(all.map(|value| value.to_f64().to_bits()).collect())
}

#[test]
fn compiled_kernels_give_the_bits_of_interpreted_programs() -> Result<(), Error> {
    let compiled = compiled_here();
    let interpreted = Algebra::interpreted(compiled.signature())?;
    assert!(compiled.is_compiled() && !interpreted.is_compiled());
    for name in ops::TABLE.iter().map(|row| row.name) {
        let operator = |algebra| ops::by_name(algebra, name, &[]);
        // Whole vectors of every tier, and ragged rows.
        for channels in [64, 37] {
            let dims = Dims {
                batch: 3,
                in_channels: channels,
                out_channels: channels,
                scalar_channels: 0,
            };
            let expected = bits::<f32>(&operator(interpreted)?, &dims)?;
            let values = expected.iter().map(|&bits| f64::from_bits(bits));
            assert!(values.clone().all(f64::is_finite), "{name}");
            assert!(values.clone().any(|value| value != 0.0), "{name}");
            let got = bits::<f32>(&operator(compiled)?, &dims)?;
            assert!(got == expected, "{name} of {channels} channels in f32");
            let expected = bits::<f64>(&operator(interpreted)?, &dims)?;
            let got = bits::<f64>(&operator(compiled)?, &dims)?;
            assert!(got == expected, "{name} of {channels} channels in f64");
        }
    }
    Ok(())
}

#[test]
fn the_kernels_are_found_from_the_first_call_on() -> Result<(), Error> {
    let name = "cl001";
    let before: Algebra = name.parse()?;
    assert!(!before.is_compiled());
    // Two expansions, which several threads evaluate at once.
    let first = || algebra!(0, 0, 1);
    let second = || algebra!(0, 0, 1,);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(first().is_compiled()));
            scope.spawn(|| assert!(second().is_compiled()));
        }
    });
    let after: Algebra = name.parse()?;
    assert!(after.is_compiled());
    assert_eq!(after, before);
    // Handles of before keep what they have.
    assert!(!before.is_compiled());
    assert!(!Algebra::interpreted(after.signature())?.is_compiled());
    Ok(())
}

/// An algebra with compiled kernels, of numbers that another macro passes on.
macro_rules! algebra_of {
    ($p:literal, $q:expr, $r:tt) => {
        flashcliff::algebra!($p, $q, $r)
    };
}

#[test]
fn other_macros_may_pass_the_numbers_on() {
    // A build with this signature among its features keeps its own kernels.
    let line = algebra_of!(1, 0, 0);
    assert_eq!(line.name(), "cl100");
    assert!(line.is_compiled());
}
