//! An operator with buffers for all tensors that it reads and writes, in one element type.

use flashcliff::{Dims, Element, Operator, Pass, Tensor, TensorMut, TensorSpec};
use flashcliff_floor::values;

use crate::check::{Sample, Sampled, Tolerance, compare};
use crate::work::{Buffers, Call};
use crate::{Case, Error, Form, Passes};

/// An operator with its tensors.
#[derive(Clone, Debug)]
pub(super) struct OfType<T> {
    operator: Operator,
    form: Form,
    dims: Dims,
    inputs: Vec<(Vec<usize>, Vec<T>)>,
    output: Vec<T>,
    grad_output: Vec<T>,
    grads: Vec<Vec<T>>,
    saved: Vec<T>,
    workspace: Vec<T>,
}

fn random<T: Element>(len: usize, seed: u64) -> Vec<T> {
    let values = values(len, seed);
    values.into_iter().map(|v| T::from_f64(v.into())).collect()
}

fn views<T: Element>(inputs: &[(Vec<usize>, Vec<T>)]) -> Result<Vec<Tensor<'_, T>>, Error> {
    let views = inputs.iter();
    let views = views.map(|(shape, data)| Ok(Tensor::new(data, shape)?));
    views.collect()
}

impl<T: Element> OfType<T> {
    pub(super) fn new(case: &Case) -> Result<Self, Error> {
        let operator = case.bind()?;
        let dims = case.dims;
        let input = |(seed, spec): (u64, &TensorSpec)| {
            let shape = spec.shape(&dims);
            let data = random(shape.iter().product(), seed);
            (shape, data)
        };
        let inputs: Vec<(Vec<usize>, Vec<T>)> = (1..).zip(operator.inputs()).map(input).collect();
        let len = operator.output_shape(&dims).iter().product();
        let workspace = [Pass::Forward, Pass::Backward]
            .map(|pass| operator.workspace_len::<T>(&dims, pass))
            .into_iter()
            .max()
            .unwrap_or(0);
        let zeros = |len| vec![T::default(); len];
        Ok(Self {
            output: zeros(len),
            grad_output: random(len, 99),
            grads: inputs.iter().map(|(_, data)| zeros(data.len())).collect(),
            saved: zeros(operator.saved_len(&dims)),
            workspace: zeros(workspace),
            inputs,
            dims,
            form: case.form,
            operator,
        })
    }

    /// The output and the gradients of calls that make them; no gradients of a forward pass alone.
    fn make(&self, passes: Passes) -> Result<(Vec<T>, Vec<Vec<T>>), Error> {
        let inputs = views(&self.inputs)?;
        let evaluation = self.operator.evaluate(&inputs)?;
        let grads = match passes {
            Passes::Forward => Vec::new(),
            Passes::Both => {
                let grad_output = Tensor::new(&self.grad_output, &evaluation.output_shape)?;
                self.operator.gradients(&inputs, &evaluation, grad_output)?
            }
        };
        Ok((evaluation.output, grads))
    }

    /// Runs the calls that write to memory that is there.
    fn write(&mut self, passes: Passes) -> Result<(), Error> {
        let inputs = views(&self.inputs)?;
        let shape = self.operator.output_shape(&self.dims);
        let output = TensorMut::new(&mut self.output, &shape)?;
        self.operator
            .forward(&inputs, output, &mut self.saved, &mut self.workspace)?;
        if passes == Passes::Forward {
            return Ok(());
        }
        let mut grads = Vec::with_capacity(inputs.len());
        for (grad, (shape, _)) in self.grads.iter_mut().zip(&self.inputs) {
            grads.push(Some(TensorMut::new(grad, shape)?));
        }
        let output = Tensor::new(&self.output, &shape)?;
        let grad_output = Tensor::new(&self.grad_output, &shape)?;
        let (saved, workspace) = (&self.saved, &mut self.workspace);
        self.operator
            .backward(&inputs, output, saved, grad_output, &mut grads, workspace)?;
        Ok(())
    }

    fn compare(&self, case: &Case, sample: &Sample) -> Result<f64, Error> {
        let pick =
            |spec: &TensorSpec, data: &[T]| sample.pick(spec, data.len(), |i| data[i].to_f64());
        let specs = self.operator.inputs();
        let spec = self.operator.output();
        let sampled = Sampled {
            inputs: (specs.iter().zip(&self.inputs))
                .map(|(spec, (_, data))| pick(spec, data))
                .collect(),
            output: pick(spec, &self.output),
            grad_output: pick(spec, &self.grad_output),
            grads: (specs.iter().zip(&self.grads))
                .map(|(spec, data)| pick(spec, data))
                .collect(),
        };
        compare(case, &self.operator, &sampled, Tolerance::of(T::DTYPE))
    }
}

impl<T: Element> Buffers for OfType<T> {
    fn call(&self, passes: Passes) -> Call {
        Call::of(&self.operator, &self.dims, T::DTYPE, passes)
    }

    fn run(&mut self, passes: Passes) -> Result<(), Error> {
        match self.form {
            Form::Given => self.write(passes),
            Form::Made => self.make(passes).map(drop),
        }
    }

    fn check(&mut self, case: &Case) -> Result<f64, Error> {
        let sample = Sample::of(&self.dims);
        let full = self.grad_output.clone();
        let spec = self.operator.output().clone();
        sample.clear_others(&spec, &mut self.grad_output, T::default());
        match self.form {
            Form::Given => self.write(Passes::Both)?,
            Form::Made => (self.output, self.grads) = self.make(Passes::Both)?,
        }
        let difference = self.compare(case, &sample)?;
        self.grad_output = full;
        Ok(difference)
    }

    fn moved(&self) -> Option<Box<dyn Buffers>> {
        Some(Box::new(self.clone()))
    }
}

#[cfg(test)]
mod tests {
    use cayley::Signature;
    use flashcliff::Dtype;
    use flashcliff::ops::TABLE;

    use super::*;

    fn case(operator: &'static str, [p, q, r]: [usize; 3], dtype: Dtype) -> Case {
        Case::new(
            operator,
            Signature::new(p, q, r).unwrap(),
            dtype,
            Passes::Both,
            Dims {
                batch: 5,
                in_channels: 7,
                out_channels: 7,
                scalar_channels: 0,
            },
        )
    }

    const SIGNATURES: [[usize; 3]; 6] = [
        [2, 0, 0],
        [3, 0, 0],
        [0, 2, 0],
        [1, 3, 0],
        [3, 0, 1],
        [1, 0, 2],
    ];

    #[test]
    fn every_operator_agrees_with_its_formula_in_every_kind_of_algebra() {
        for operator in TABLE {
            for signature in SIGNATURES {
                let single = case(operator.name, signature, Dtype::F32);
                let difference = OfType::<f32>::new(&single).unwrap().check(&single);
                assert!(difference.unwrap() < 1e-5);
                let double = case(operator.name, signature, Dtype::F64);
                let difference = OfType::<f64>::new(&double).unwrap().check(&double);
                assert!(difference.unwrap() < 1e-13);
            }
        }
    }

    #[test]
    fn calls_that_make_what_they_write_agree_too() {
        for operator in TABLE {
            let given = case(operator.name, [3, 0, 0], Dtype::F32);
            let made = Case {
                form: Form::Made,
                ..given.clone()
            };
            let [mut own, mut other] =
                [&given, &made].map(|case| OfType::<f32>::new(case).unwrap());
            own.check(&given).unwrap();
            assert!(other.check(&made).unwrap() < 1e-5, "{}", operator.name);
            assert_eq!(own.output, other.output);
            assert_eq!(own.grads, other.grads);
        }
    }

    /// A wrong element of any tensor of any operator is found.
    #[test]
    fn wrong_results_are_found() {
        for operator in TABLE {
            let case = case(operator.name, [3, 0, 0], Dtype::F32);
            let mut buffers = OfType::<f32>::new(&case).unwrap();
            let sample = Sample::of(&case.dims);
            let spec = buffers.operator.output().clone();
            sample.clear_others(&spec, &mut buffers.grad_output, 0.0);
            buffers.run(Passes::Both).unwrap();
            buffers.compare(&case, &sample).unwrap();
            for wrong in [0.05, f32::NAN, f32::INFINITY] {
                let mut broken = buffers.clone();
                broken.output[0] += wrong;
                let error = broken.compare(&case, &sample).unwrap_err();
                assert!(
                    matches!(error, Error::WrongResult { index: 0, .. }),
                    "{error}"
                );
                for input in 0..buffers.grads.len() {
                    let mut broken = buffers.clone();
                    let largest = buffers.grads[input]
                        .iter()
                        .fold(0.0_f32, |max, g| max.max(g.abs()));
                    broken.grads[input][0] += wrong * largest;
                    let error = broken.compare(&case, &sample).unwrap_err().to_string();
                    let name = buffers.operator.inputs()[input].name;
                    assert!(error.contains(&format!("grad_{name} ")), "{error}");
                }
            }
        }
    }

    #[test]
    fn bytes_are_those_of_the_tensors() {
        let case = case("sgp_norm", [3, 0, 0], Dtype::F64);
        let (tensor, w) = (8 * 5 * 7 * 8, 20 * 7 * 8);
        let buffers = OfType::<f64>::new(&case).unwrap();
        assert_eq!(buffers.call(Passes::Forward).bytes, 3 * tensor + w);
        assert_eq!(buffers.call(Passes::Both).bytes, 8 * tensor + 3 * w);
    }
}
