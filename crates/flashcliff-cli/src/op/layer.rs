//! CGENN's product layers on the tensors of a file, with the names of their PyTorch state dict.

use candle_core::{DType, Device, Module, Tensor, Var};
use flashcliff::Algebra;
use flashcliff::ops::SteerableOptions;
use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::{
    FullyConnectedSteerableGeometricProduct, SteerableGeometricProduct, SteerableLayerOptions,
};

use super::store::{Array, COPIES, GRAD_OUTPUT, Results, Stored, TensorFile};
use crate::error::Error;
use crate::memory::{elements as elements_of, room_for};

/// Which channels meet in the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Connection {
    /// Each channel with itself.
    Channelwise,
    /// All input channels for every output channel.
    Full,
}

/// A layer whose sizes the file decides.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    algebra: Algebra,
    connection: Connection,
    first_order: bool,
    normalize: bool,
}

impl Layer {
    /// A layer with these options.
    pub(super) fn new(
        algebra: Algebra,
        connection: Connection,
        options: &SteerableOptions,
    ) -> Self {
        Self {
            algebra,
            connection,
            first_order: options.first_order,
            normalize: options.normalize,
        }
    }

    /// The names of the inputs: `x` and the parameters.
    pub(super) fn input_names(&self) -> Vec<String> {
        self.specs("C", "C")
            .into_iter()
            .map(|(name, _)| name.to_owned())
            .collect()
    }

    /// The tensors with their shapes, a line each.
    pub(super) fn shapes(&self) -> String {
        let (from, to) = match self.connection {
            Connection::Channelwise => ("C", "C"),
            Connection::Full => ("in", "out"),
        };
        let inputs = self.specs(from, to);
        let inputs = inputs
            .into_iter()
            .map(|(name, axes)| format!("{name} [{}]\n", axes.join(", ")));
        let output = format!("-> o [{}, batch, {to}]\n", self.algebra.blade_count());
        inputs.chain([output]).collect()
    }

    /// Runs the layer on a device and, if asked, its gradients.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub(super) fn run<T: Stored>(
        &self,
        file: &TensorFile,
        grad: bool,
        device: &Device,
    ) -> Result<Results, Error> {
        let x: Array<T> = file.array("x")?;
        let weight: Array<T> = file.array("weight")?;
        let (from, to) = self.channels(&x.shape, &weight.shape)?;
        let batch = x.shape[1];
        let axes = |name: &str| match name {
            "batch" => batch,
            "in" => from,
            "out" => to,
            number => number.parse().unwrap_or(0),
        };
        let mut arrays = Vec::new();
        for (name, symbols) in self.specs("in", "out") {
            let array: Array<T> = file.array(name)?;
            let shape: Vec<usize> = symbols.iter().map(|axis| axes(axis)).collect();
            self.check_shape(name, &array.shape, &shape)?;
            arrays.push((name, array));
        }
        let grad_output: Option<Array<T>> = grad.then(|| file.array(GRAD_OUTPUT)).transpose()?;
        if let Some(grad_output) = &grad_output {
            let shape = [self.algebra.blade_count(), batch, to];
            self.check_shape(GRAD_OUTPUT, &grad_output.shape, &shape)?;
        }

        // Both operands of the product and its result, each once more for the backward pass.
        let output = elements_of(&[self.algebra.blade_count(), batch, to]);
        let held = x.data.len() as u128 * if grad { 4 + COPIES } else { 4 };
        room_for(
            format!("{}: an output of {batch} x {to} multivectors", self.name()),
            (output * (2 + COPIES) + held) * size_of::<T>() as u128,
        )?;
        let parameters = Parameters::seeded(0);
        let dtype = <T as candle_core::WithDType>::DTYPE;
        let layer = self.build(from, to, dtype, device, &parameters)?;
        let x = Var::from_tensor(&tensor(&x, device)?)?;
        for (name, array) in &arrays {
            if let Some(parameter) = parameters.get(name) {
                parameter.set(&tensor(array, device)?)?;
            }
        }
        let output = layer.forward(&x)?;
        let mut results = Results::default();
        results.insert("o", output.dims(), &elements::<T>(&output)?);
        if let Some(grad_output) = &grad_output {
            let gradients = (&output * tensor(grad_output, device)?)?
                .sum_all()?
                .backward()?;
            for (name, array) in &arrays {
                let input = parameters.get(name);
                let gradient = match gradients.get(input.as_ref().unwrap_or(&x)) {
                    Some(gradient) => elements::<T>(gradient)?,
                    None => vec![T::default(); array.data.len()],
                };
                results.insert(format!("grad_{name}"), &array.shape, &gradient);
            }
        }
        Ok(results)
    }

    fn name(&self) -> &'static str {
        match self.connection {
            Connection::Channelwise => "cgenn_sgp",
            Connection::Full => "cgenn_fcgp",
        }
    }

    /// Name and axes of every input, with these names for the numbers of channels.
    fn specs(&self, from: &'static str, to: &'static str) -> Vec<(&'static str, Vec<String>)> {
        let axes = |axes: &[&str]| axes.iter().map(|&axis| axis.to_owned()).collect();
        let grades = self.algebra.grade_count().to_string();
        let blades = self.algebra.blade_count().to_string();
        let paths = self.algebra.path_count().to_string();
        let weight = match self.connection {
            Connection::Channelwise => axes(&[from, &paths]),
            Connection::Full => axes(&[to, from, &paths]),
        };
        let mut specs = vec![
            ("x", axes(&[&blades, "batch", from])),
            ("weight", weight),
            ("linear_right.weight", axes(&[from, from, &grades])),
        ];
        if self.normalize {
            specs.push(("normalization.a", axes(&[from, &grades])));
        }
        if self.first_order {
            specs.push(("linear_left.weight", axes(&[to, from, &grades])));
            specs.push(("linear_left.bias", axes(&["1", to, "1"])));
        }
        specs
    }

    /// The numbers of input and output channels, from the shapes of `x` and `weight`.
    fn channels(&self, x: &[usize], weight: &[usize]) -> Result<(usize, usize), Error> {
        let &[_, _, from] = x else {
            return Err(self.shape_error(
                "x",
                x,
                format!("[{}, batch, in]", self.algebra.blade_count()),
            ));
        };
        match (self.connection, weight) {
            (Connection::Channelwise, _) => Ok((from, from)),
            (Connection::Full, &[to, _, _]) => Ok((from, to)),
            (Connection::Full, _) => {
                let expected = format!("[out, in = {from}, {}]", self.algebra.path_count());
                Err(self.shape_error("weight", weight, expected))
            }
        }
    }

    fn check_shape(&self, tensor: &str, got: &[usize], expected: &[usize]) -> Result<(), Error> {
        if got == expected {
            return Ok(());
        }
        Err(self.shape_error(tensor, got, format!("{expected:?}")))
    }

    fn shape_error(&self, tensor: &str, got: &[usize], expected: String) -> Error {
        Error::TensorShape {
            operator: self.name().to_owned(),
            tensor: tensor.to_owned(),
            expected,
            got: got.to_vec(),
        }
    }

    fn build(
        &self,
        from: usize,
        to: usize,
        dtype: DType,
        device: &Device,
        parameters: &Parameters,
    ) -> Result<Box<dyn Module>, Error> {
        let options = SteerableLayerOptions {
            first_order: self.first_order,
            normalization_init: self.normalize.then_some(0.0),
        };
        let vb = parameters.builder(dtype, device);
        Ok(match self.connection {
            Connection::Channelwise => Box::new(SteerableGeometricProduct::new(
                self.algebra,
                from,
                options,
                vb,
            )?),
            Connection::Full => {
                let algebra = self.algebra;
                Box::new(FullyConnectedSteerableGeometricProduct::new(
                    algebra, from, to, options, vb,
                )?)
            }
        })
    }
}

fn tensor<T: Stored>(array: &Array<T>, device: &Device) -> Result<Tensor, Error> {
    Ok(Tensor::from_slice(&array.data, &array.shape[..], device)?)
}

/// The elements of a tensor, in order.
pub(super) fn elements<T: Stored>(tensor: &Tensor) -> Result<Vec<T>, Error> {
    Ok(tensor.flatten_all()?.to_vec1()?)
}
