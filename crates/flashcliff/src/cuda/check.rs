//! The checks of a call: shapes, element types, devices, sizes of buffers.

use std::fmt;

use cudarc::driver::CudaStream;

use super::device::Device;
use super::dtype::Dtypes;
use super::tensor::{Layout, Scratch, Tensor, TensorMut};
use crate::operator::{Dims, Operator, TensorSpec};
use crate::{Dtype, Error};

/// The name of a tensor, as errors print it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Label {
    Tensor(&'static str),
    Gradient(&'static str),
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tensor(name) => f.write_str(name),
            Self::Gradient(name) => write!(f, "grad_{name}"),
        }
    }
}

/// The label of the values that are kept from the forward to the backward pass.
pub(super) const SAVED: Label = Label::Tensor("saved");

/// Checks of the tensors of an operator on a device. They allocate only to report an error.
#[derive(Clone, Copy)]
pub(super) struct Checks<'a> {
    pub(super) operator: &'a Operator,
    pub(super) ordinal: usize,
}

impl Checks<'_> {
    pub(super) fn stream(&self, stream: &CudaStream, device: &Device) -> Result<(), Error> {
        let context = stream.context();
        self.device(Label::Tensor("stream"), context.ordinal())?;
        if context.cu_ctx() == device.context().cu_ctx() {
            return Ok(());
        }
        Err(Error::CudaContext {
            ordinal: context.ordinal(),
        })
    }

    /// The sizes and element types that the inputs agree on.
    pub(super) fn inputs(&self, inputs: &[Tensor<'_>]) -> Result<(Dims, Dtypes), Error> {
        let dims = self.operator.unify(inputs.iter().map(Tensor::shape))?;
        let specs = self.operator.inputs();
        let first = |parameter: bool| {
            let mut pairs = specs.iter().zip(inputs);
            let found = pairs.find(|(spec, _)| spec.is_parameter() == parameter);
            found.map(|(_, input)| input.dtype())
        };
        // Every operator has a lane input.
        let lanes = first(false).unwrap_or(Dtype::F32);
        let params = first(true).unwrap_or(lanes);
        let dtypes = Dtypes { lanes, params };
        self.dtypes(dtypes)?;
        for (spec, input) in specs.iter().zip(inputs) {
            let wanted = dtypes.of(spec);
            self.tensor(Label::Tensor(spec.name), input.layout(), wanted)?;
        }
        Ok((dims, dtypes))
    }

    /// The sizes and types of a run. Where no input is a parameter, the type of sums over the batch is that of the
    /// first one that is wanted.
    pub(super) fn run(
        &self,
        inputs: &[Tensor<'_>],
        outputs: &[Option<TensorMut<'_>>],
    ) -> Result<(Dims, Dtypes), Error> {
        let (dims, mut dtypes) = self.inputs(inputs)?;
        let mut specs = self.operator.inputs().iter();
        if !specs.any(TensorSpec::is_parameter) {
            let mut written = self.operator.outputs().iter().zip(outputs);
            let sums =
                written.find_map(|(spec, output)| output.as_ref().filter(|_| spec.is_parameter()));
            dtypes.params = sums.map_or(dtypes.params, TensorMut::dtype);
            self.dtypes(dtypes)?;
        }
        self.outputs(&dims, dtypes, outputs)?;
        Ok((dims, dtypes))
    }

    /// Checks that there are kernels for these element types together.
    pub(super) fn dtypes(&self, dtypes: Dtypes) -> Result<(), Error> {
        if dtypes.are_supported() {
            return Ok(());
        }
        let mut specs = self.operator.inputs().iter();
        let name = specs.find(|spec| spec.is_parameter());
        let (lanes, arithmetic) = (dtypes.lanes, dtypes.arithmetic());
        let expected = match lanes == arithmetic {
            true => lanes.to_string(),
            false => format!("{lanes} or {arithmetic}"),
        };
        Err(self.wrong_dtype(
            name.map_or("parameters", |spec| spec.name),
            format!("{expected}, as the other tensors are {lanes}"),
            dtypes.params,
        ))
    }

    pub(super) fn output(&self, dims: &Dims, dtypes: Dtypes, layout: &Layout) -> Result<(), Error> {
        self.operator.check_output(dims, layout.shape.as_slice())?;
        let label = Label::Tensor(self.operator.output().name);
        self.tensor(label, layout, dtypes.lanes)
    }

    /// Checks the outputs of a run; those that are not wanted are `None`.
    pub(super) fn outputs(
        &self,
        dims: &Dims,
        dtypes: Dtypes,
        outputs: &[Option<TensorMut<'_>>],
    ) -> Result<(), Error> {
        let shapes = outputs.iter();
        let shapes = shapes.map(|output| output.as_ref().map(|o| o.layout().shape.as_slice()));
        self.operator.check_outputs(dims, shapes)?;
        for (output, spec) in outputs.iter().zip(self.operator.outputs()) {
            if let Some(output) = output {
                let label = Label::Tensor(spec.name);
                self.tensor(label, output.layout(), dtypes.of(spec))?;
            }
        }
        Ok(())
    }

    pub(super) fn grad_output(
        &self,
        dims: &Dims,
        dtypes: Dtypes,
        layout: &Layout,
    ) -> Result<(), Error> {
        let spec = self.operator.output();
        self.gradient(spec, dims, layout, dtypes.lanes)
    }

    pub(super) fn gradients(
        &self,
        dims: &Dims,
        dtypes: Dtypes,
        grads: &[Option<TensorMut<'_>>],
    ) -> Result<(), Error> {
        self.operator.check_count("gradients", grads.len())?;
        for (grad, spec) in grads.iter().zip(self.operator.inputs()) {
            if let Some(grad) = grad {
                self.gradient(spec, dims, grad.layout(), dtypes.of(spec))?;
            }
        }
        Ok(())
    }

    pub(super) fn saved(
        &self,
        dims: &Dims,
        dtypes: Dtypes,
        layout: Option<&Layout>,
    ) -> Result<(), Error> {
        let needed = self.saved_len(dims, dtypes);
        let got = layout.map_or(0, |layout| layout.len);
        self.operator.check_buffer("saved", needed, got)?;
        layout.map_or(Ok(()), |layout| {
            self.tensor(SAVED, layout, dtypes.arithmetic())
        })
    }

    /// The number of elements to save, counted in the type of the arithmetic. The tensor that is kept has the type of
    /// the lanes.
    pub(super) fn saved_len(&self, dims: &Dims, dtypes: Dtypes) -> usize {
        let kept = self.operator.kept_len(dims);
        dtypes.kept_len(kept) + self.operator.row_sums() * dims.batch
    }

    pub(super) fn workspace(
        &self,
        needed: usize,
        workspace: Option<&Scratch<'_>>,
    ) -> Result<(), Error> {
        let got = workspace.map_or(0, Scratch::bytes);
        if got < needed {
            return Err(Error::WorkspaceTooSmall {
                operator: self.operator.name().to_owned(),
                expected: needed,
                got,
            });
        }
        let ordinal = workspace.map_or(self.ordinal, Scratch::ordinal);
        self.device(Label::Tensor("workspace"), ordinal)
    }

    /// Checks a parameter of a call of some sizes and types.
    pub(super) fn parameter(
        &self,
        spec: &TensorSpec,
        dims: &Dims,
        dtypes: Dtypes,
        layout: &Layout,
    ) -> Result<(), Error> {
        let label = Label::Tensor(spec.name);
        let shape = layout.shape.as_slice();
        self.operator.check_shape(label, spec, dims, shape)?;
        self.tensor(label, layout, dtypes.of(spec))
    }

    pub(super) fn gradient(
        &self,
        spec: &TensorSpec,
        dims: &Dims,
        layout: &Layout,
        dtype: Dtype,
    ) -> Result<(), Error> {
        let label = Label::Gradient(spec.name);
        let shape = layout.shape.as_slice();
        self.operator.check_shape(label, spec, dims, shape)?;
        self.tensor(label, layout, dtype)
    }

    fn tensor(&self, label: Label, layout: &Layout, dtype: Dtype) -> Result<(), Error> {
        if layout.dtype != dtype {
            return Err(self.wrong_dtype(label, dtype.to_string(), layout.dtype));
        }
        self.device(label, layout.ordinal)
    }

    pub(super) fn device(&self, label: Label, got: usize) -> Result<(), Error> {
        if got == self.ordinal {
            return Ok(());
        }
        Err(Error::DeviceMismatch {
            operator: self.operator.name().to_owned(),
            tensor: label.to_string(),
            expected: self.ordinal,
            got,
        })
    }

    fn wrong_dtype(&self, tensor: impl fmt::Display, expected: String, got: Dtype) -> Error {
        Error::DtypeMismatch {
            operator: self.operator.name().to_owned(),
            tensor: tensor.to_string(),
            expected,
            got,
        }
    }
}
