//! Adam.

use std::cell::RefCell;

use candle_core::backend::BackendStorage;
use candle_core::backprop::GradStore;
use candle_core::{CpuStorage, DType, Device, InplaceOp2, Layout, Tensor, Var};

use crate::Error;
use crate::checkpoint::Checkpoint;
use crate::op::Scalar;

/// Options of [`Adam`]; the defaults are those of `torch.optim.Adam`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamOptions {
    /// The learning rate.
    pub learning_rate: f64,
    /// The decay rate of the mean of the gradients.
    pub beta1: f64,
    /// The decay rate of the mean of the squared gradients.
    pub beta2: f64,
    /// The number that is added to the root of the second moment.
    pub eps: f64,
    /// The factor of the parameter that is added to its gradient (an L2 penalty, not decoupled decay).
    pub weight_decay: f64,
}

impl Default for AdamOptions {
    fn default() -> Self {
        Self {
            learning_rate: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.0,
        }
    }
}

/// Adam, with the arithmetic of `torch.optim.Adam`.
///
/// For each parameter `p` with gradient `g`, at its step `t = 1, 2, ...`:
/// ```text
/// g <- g + weight_decay p
/// m <- m + (1 - beta1) (g - m)
/// v <- beta2 v + (1 - beta2) g g
/// p <- p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
/// ```
/// Coefficients are computed in `f64` and rounded to the type of the parameter; the rest is computed in that type.
/// Parameters change in place. On the CPU each parameter takes one pass on the calling thread, so results do not depend
/// on the number of threads. On a GPU candle's operations run there, and moments stay there. A parameter without a
/// gradient is left unchanged.
///
/// Source: D. P. Kingma and J. Ba, *Adam: a method for stochastic optimization*, ICLR 2015,
/// algorithm 1.
#[derive(Debug)]
pub struct Adam {
    options: AdamOptions,
    slots: Vec<Slot>,
}

#[derive(Debug)]
struct Slot {
    name: String,
    var: Var,
    step: u32,
    moments: Moments,
}

/// The first and second moments, in the type of the parameter.
#[derive(Debug, Clone)]
enum Moments {
    F32(Vec<f32>, Vec<f32>),
    F64(Vec<f64>, Vec<f64>),
    /// The moments of a parameter that is not on the CPU, as tensors on its device.
    Beside(Tensor, Tensor),
}

impl Adam {
    /// An optimiser at step 0 for these variables.
    ///
    /// # Errors
    /// An option outside its range; a variable that is neither `f32` nor `f64`.
    pub fn new(variables: Vec<(String, Var)>, options: AdamOptions) -> Result<Self, Error> {
        check(&options)?;
        let mut slots = Vec::with_capacity(variables.len());
        for (name, var) in variables {
            let count = var.elem_count();
            let moments = match (var.dtype(), var.device().is_cpu()) {
                (DType::F32, true) => Moments::F32(vec![0.0; count], vec![0.0; count]),
                (DType::F64, true) => Moments::F64(vec![0.0; count], vec![0.0; count]),
                (DType::F32 | DType::F64, false) => {
                    Moments::Beside(var.zeros_like()?, var.zeros_like()?)
                }
                (got, _) => {
                    return Err(Error::InputType {
                        operator: format!("Adam: {name}"),
                        input: slots.len(),
                        expected: "F32 or F64",
                        got,
                    });
                }
            };
            slots.push(Slot {
                name,
                var,
                step: 0,
                moments,
            });
        }
        Ok(Self { options, slots })
    }

    /// The options in force.
    pub fn options(&self) -> &AdamOptions {
        &self.options
    }

    /// Changes the learning rate, for schedules.
    ///
    /// # Errors
    /// A learning rate that is negative or not finite.
    pub fn set_learning_rate(&mut self, learning_rate: f64) -> Result<(), Error> {
        let options = AdamOptions {
            learning_rate,
            ..self.options
        };
        check(&options)?;
        self.options = options;
        Ok(())
    }

    /// One step with the gradients of a backward pass.
    ///
    /// # Errors
    /// A gradient whose shape or type differs from that of its parameter. The parameters before it have then been
    /// changed.
    pub fn step(&mut self, gradients: &GradStore) -> Result<(), Error> {
        for slot in &mut self.slots {
            let Some(gradient) = gradients.get(&slot.var) else {
                continue;
            };
            if gradient.dims() != slot.var.dims() {
                return Err(Error::Shape {
                    tensor: format!("gradient of {}", slot.name),
                    expected: format!("{:?}", slot.var.dims()),
                    got: gradient.dims().to_vec(),
                });
            }
            let gradient = gradient.contiguous()?;
            slot.step += 1;
            let coefficients = Coefficients::at(&self.options, slot.step);
            match &mut slot.moments {
                Moments::F32(m, v) => update(&slot.var, &gradient, m, v, coefficients)?,
                Moments::F64(m, v) => update(&slot.var, &gradient, m, v, coefficients)?,
                Moments::Beside(m, v) => {
                    update_beside(&slot.var, &gradient, m, v, coefficients)?;
                }
            }
        }
        Ok(())
    }

    /// Adds the state to a checkpoint: `{prefix}{name}.exp_avg`, `{prefix}{name}.exp_avg_sq` (the
    /// moments, under PyTorch's names) and `{prefix}step`, the step of each parameter in the order
    /// given to [`Adam::new`].
    ///
    /// # Errors
    /// The errors of candle when it makes the tensors.
    pub fn export(&self, prefix: &str, checkpoint: &mut Checkpoint) -> Result<(), Error> {
        let steps: Vec<u32> = self.slots.iter().map(|slot| slot.step).collect();
        let count = steps.len();
        let steps = Tensor::from_vec(steps, count, &Device::Cpu)?;
        checkpoint.insert(format!("{prefix}step"), &steps);
        for slot in &self.slots {
            let shape = slot.var.shape();
            let (m, v) = match &slot.moments {
                Moments::F32(m, v) => (
                    Tensor::from_slice(m, shape, &Device::Cpu)?,
                    Tensor::from_slice(v, shape, &Device::Cpu)?,
                ),
                Moments::F64(m, v) => (
                    Tensor::from_slice(m, shape, &Device::Cpu)?,
                    Tensor::from_slice(v, shape, &Device::Cpu)?,
                ),
                Moments::Beside(m, v) => (m.clone(), v.clone()),
            };
            checkpoint.insert(format!("{prefix}{}.exp_avg", slot.name), &m);
            checkpoint.insert(format!("{prefix}{}.exp_avg_sq", slot.name), &v);
        }
        Ok(())
    }

    /// Takes the state out of a checkpoint that [`Adam::export`] filled.
    ///
    /// # Errors
    /// A missing tensor, a wrong shape or a wrong type. Nothing is then changed.
    pub fn import(&mut self, prefix: &str, checkpoint: &Checkpoint) -> Result<(), Error> {
        let steps = checkpoint.get(&format!("{prefix}step"), &[self.slots.len()], DType::U32)?;
        let steps: Vec<u32> = steps.to_vec1()?;
        let mut moments = Vec::with_capacity(self.slots.len());
        for slot in &self.slots {
            let get = |kind: &str| {
                let name = format!("{prefix}{}.{kind}", slot.name);
                checkpoint.get(&name, slot.var.dims(), slot.var.dtype())
            };
            let (m, v) = (get("exp_avg")?, get("exp_avg_sq")?);
            let (flat_m, flat_v) = (m.flatten_all()?, v.flatten_all()?);
            moments.push(match &slot.moments {
                Moments::F32(..) => Moments::F32(flat_m.to_vec1()?, flat_v.to_vec1()?),
                Moments::F64(..) => Moments::F64(flat_m.to_vec1()?, flat_v.to_vec1()?),
                Moments::Beside(..) => {
                    let device = slot.var.device();
                    Moments::Beside(m.to_device(device)?, v.to_device(device)?)
                }
            });
        }
        for ((slot, step), moments) in self.slots.iter_mut().zip(steps).zip(moments) {
            slot.step = step;
            slot.moments = moments;
        }
        Ok(())
    }
}

fn check(options: &AdamOptions) -> Result<(), Error> {
    let nonnegative = |option, got: f64| {
        if got.is_finite() && got >= 0.0 {
            return Ok(());
        }
        Err(Error::Option {
            option,
            expected: "a finite number >= 0",
            got,
        })
    };
    let rate = |option, got: f64| {
        if (0.0..1.0).contains(&got) {
            return Ok(());
        }
        Err(Error::Option {
            option,
            expected: "a number in [0, 1)",
            got,
        })
    };
    nonnegative("learning_rate", options.learning_rate)?;
    rate("beta1", options.beta1)?;
    rate("beta2", options.beta2)?;
    nonnegative("eps", options.eps)?;
    nonnegative("weight_decay", options.weight_decay)
}

/// The coefficients of one step.
#[derive(Clone, Copy)]
struct Coefficients {
    weight_decay: f64,
    gain1: f64,
    beta2: f64,
    gain2: f64,
    correction2: f64,
    eps: f64,
    step_size: f64,
}

impl Coefficients {
    fn at(options: &AdamOptions, step: u32) -> Self {
        let power = |beta: f64| beta.powf(f64::from(step));
        Self {
            weight_decay: options.weight_decay,
            gain1: 1.0 - options.beta1,
            beta2: options.beta2,
            gain2: 1.0 - options.beta2,
            correction2: (1.0 - power(options.beta2)).sqrt(),
            eps: options.eps,
            step_size: options.learning_rate / (1.0 - power(options.beta1)),
        }
    }
}

/// Updates one parameter by operations of its device. Moments are replaced, not written to, because a checkpoint may
/// hold them.
fn update_beside(
    var: &Var,
    gradient: &Tensor,
    m: &mut Tensor,
    v: &mut Tensor,
    c: Coefficients,
) -> candle_core::Result<()> {
    let parameter = var.as_detached_tensor();
    let mut g = gradient.detach();
    if c.weight_decay != 0.0 {
        g = (g + parameter.affine(c.weight_decay, 0.0)?)?;
    }
    *m = (&*m + (&g - &*m)?.affine(c.gain1, 0.0)?)?;
    *v = (v.affine(c.beta2, 0.0)? + g.sqr()?.affine(c.gain2, 0.0)?)?;
    let scale = v.sqrt()?.affine(1.0 / c.correction2, c.eps)?;
    var.set(&(parameter - (&*m / scale)?.affine(c.step_size, 0.0)?)?)
}

/// The update of one parameter, as an in-place operation on its variable.
struct Update<'a, T> {
    moments: RefCell<(&'a mut [T], &'a mut [T])>,
    coefficients: Coefficients,
}

fn update<T: Scalar>(
    var: &Var,
    gradient: &Tensor,
    m: &mut [T],
    v: &mut [T],
    coefficients: Coefficients,
) -> Result<(), Error> {
    let op = Update {
        moments: RefCell::new((m, v)),
        coefficients,
    };
    Ok(var.inplace_op2(gradient, &op)?)
}

impl<T: Scalar> InplaceOp2 for Update<'_, T> {
    fn name(&self) -> &'static str {
        "adam"
    }

    fn cpu_fwd(
        &self,
        parameter: &mut CpuStorage,
        layout: &Layout,
        gradient: &CpuStorage,
        gradient_layout: &Layout,
    ) -> candle_core::Result<()> {
        let (Some((start, end)), Some((from, to))) = (
            layout.contiguous_offsets(),
            gradient_layout.contiguous_offsets(),
        ) else {
            return Err(candle_core::Error::RequiresContiguous { op: "adam" });
        };
        let got = parameter.dtype();
        let Some(parameter) = T::elements_mut(parameter) else {
            return Err(candle_core::Error::UnexpectedDType {
                msg: "adam",
                expected: <T as candle_core::WithDType>::DTYPE,
                got,
            });
        };
        let parameter = &mut parameter[start..end];
        let gradient = &T::cpu_storage_as_slice(gradient)?[from..to];
        let mut moments = self.moments.borrow_mut();
        let (m, v) = &mut *moments;
        let c = &self.coefficients;
        let number = <T as candle_core::WithDType>::from_f64;
        let (decay, gain1, beta2) = (number(c.weight_decay), number(c.gain1), number(c.beta2));
        let (gain2, correction2) = (number(c.gain2), number(c.correction2));
        let (eps, step_size) = (number(c.eps), number(c.step_size));
        for (((p, &g), m), v) in parameter
            .iter_mut()
            .zip(gradient)
            .zip(m.iter_mut())
            .zip(v.iter_mut())
        {
            let g = g + decay * *p;
            *m += gain1 * (g - *m);
            *v = beta2 * *v + gain2 * g * g;
            *p -= step_size * (*m / (v.root() / correction2 + eps));
        }
        Ok(())
    }
}
