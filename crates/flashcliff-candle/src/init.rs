//! Parameters: named variables in a fixed order, drawn from a seed.
//!
//! candle's CPU random numbers cannot be seeded. [`Parameters`] serves candle's [`VarBuilder`] from a ChaCha8 stream
//! instead. Variables are drawn in the order in which constructors ask for them, so a model is a function of its seed.
//! Values are drawn in `f64` and rounded to the type of the variable, so an `f32` and an `f64` model of one seed start
//! at the same point.
//!
//! [`Parameters`] also knows what the weights belong to: layers tell their algebras and norms to the builder. Saved
//! weights say so, and weights of another algebra or norm are refused.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use candle_core::{DType, Device, Shape, Tensor, Var};
use candle_nn::init::{FanInOut, NormalOrUniform};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Init, VarBuilder};
use flashcliff_network::tokens::Start;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, StandardNormal, StandardUniform};

use crate::Error;
use crate::checkpoint::Checkpoint;
use crate::choices::{self, Choices};

/// Named variables in the order of their creation. Clones share the variables.
///
/// ```
/// use candle_core::{DType, Device};
/// use flashcliff_candle::init::Parameters;
///
/// let parameters = Parameters::seeded(7);
/// let builder = parameters.builder(DType::F32, &Device::Cpu);
/// let layer = flashcliff_candle::layers::linear(4, 2, builder.pp("mlp.0"))?;
/// assert_eq!(layer.weight().dims(), [2, 4]);
/// assert_eq!(parameters.names(), ["mlp.0.weight", "mlp.0.bias"]);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Parameters {
    store: Arc<Mutex<Store>>,
}

struct Store {
    variables: Vec<(String, Var)>,
    /// The choices of each layer.
    layers: BTreeMap<String, Choices>,
    /// The bounds of variables that have one for each index of their last axis.
    bounds: BTreeMap<String, Vec<f64>>,
    rng: ChaCha8Rng,
}

impl std::fmt::Debug for Parameters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let store = self.lock();
        let shapes = store.variables.iter().map(|(name, var)| (name, var.dims()));
        f.debug_map().entries(shapes).finish()
    }
}

impl Parameters {
    /// An empty set whose variables will be drawn from the ChaCha8 stream of `seed`.
    pub fn seeded(seed: u64) -> Self {
        let store = Store {
            variables: Vec::new(),
            layers: BTreeMap::new(),
            bounds: BTreeMap::new(),
            rng: ChaCha8Rng::seed_from_u64(seed),
        };
        Self {
            store: Arc::new(Mutex::new(store)),
        }
    }

    /// A builder for the constructors of layers and models. It creates variables that are missing here, and returns
    /// those that exist.
    pub fn builder(&self, dtype: DType, device: &Device) -> VarBuilder<'static> {
        VarBuilder::from_backend(Box::new(self.clone()), dtype, device.clone())
    }

    /// The variables with their names, in the order of their creation.
    pub fn variables(&self) -> Vec<(String, Var)> {
        self.lock().variables.clone()
    }

    /// The variable that was created first.
    pub(crate) fn first(&self) -> Option<Var> {
        self.lock().variables.first().map(|(_, var)| var.clone())
    }

    /// The names, in the order of their creation.
    pub fn names(&self) -> Vec<String> {
        self.lock()
            .variables
            .iter()
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Total number of elements.
    pub fn element_count(&self) -> usize {
        self.lock()
            .variables
            .iter()
            .map(|(_, var)| var.elem_count())
            .sum()
    }

    /// The variable of that name.
    pub fn get(&self, name: &str) -> Option<Var> {
        self.lock().find(name).cloned()
    }

    /// Adds every variable to a checkpoint, under `{prefix}{name}`, with the algebra and the norm of each layer.
    pub fn export(&self, prefix: &str, checkpoint: &mut Checkpoint) {
        for (name, var) in self.variables() {
            checkpoint.insert(format!("{prefix}{name}"), &var);
        }
        self.describe(prefix, checkpoint);
    }

    /// Adds the algebra and the norm of each layer to a checkpoint that has weights of these layers under `{prefix}{name}`.
    pub fn describe(&self, prefix: &str, checkpoint: &mut Checkpoint) {
        for (layer, choices) in &self.lock().layers {
            for (choice, value) in choices {
                checkpoint.describe(stored_name(prefix, layer), choice, value);
            }
        }
    }

    /// Checks that the weights under `{prefix}{name}` of a checkpoint belong to the algebras and norms of these layers, as
    /// far as the checkpoint says so.
    ///
    /// # Errors
    /// [`Error::StoredChoice`].
    pub fn check(&self, prefix: &str, checkpoint: &Checkpoint) -> Result<(), Error> {
        let store = self.lock();
        let mut layers = store.layers.iter();
        layers
            .try_for_each(|(layer, own)| checkpoint.check_choices(&stored_name(prefix, layer), own))
    }

    /// Sets every variable to the tensor `{prefix}{name}` of a checkpoint. Other tensors of the checkpoint are ignored.
    ///
    /// # Errors
    /// A missing tensor, a wrong shape or a wrong type; weights of another algebra or norm, if the checkpoint says so
    /// ([`Error::StoredChoice`]). Nothing is then changed.
    pub fn restore(&self, prefix: &str, checkpoint: &Checkpoint) -> Result<(), Error> {
        self.check(prefix, checkpoint)?;
        let store = self.lock();
        let mut values = Vec::with_capacity(store.variables.len());
        for (name, var) in &store.variables {
            let stored = format!("{prefix}{name}");
            let value = checkpoint.get(&stored, var.dims(), var.dtype())?;
            values.push(value.to_device(var.device())?);
        }
        for ((_, var), value) in store.variables.iter().zip(values) {
            var.set(&value)?;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Store> {
        // A panic under the lock could at worst lose a variable that was never given out.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name of a layer in a checkpoint. A layer without its own name has the name of the prefix.
fn stored_name(prefix: &str, layer: &str) -> String {
    format!("{prefix}{layer}").trim_end_matches('.').to_owned()
}

impl Store {
    fn find(&self, name: &str) -> Option<&Var> {
        self.variables
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, var)| var)
    }
}

impl SimpleBackend for Parameters {
    fn get(
        &self,
        shape: Shape,
        name: &str,
        init: Init,
        dtype: DType,
        device: &Device,
    ) -> candle_core::Result<Tensor> {
        let mut store = self.lock();
        if let Some(var) = store.find(name) {
            let tensor = name.to_owned();
            if var.shape() != &shape {
                return Err(Error::Shape {
                    tensor,
                    expected: format!("{:?}", shape.dims()),
                    got: var.dims().to_vec(),
                }
                .into());
            }
            if var.dtype() != dtype {
                return Err(Error::StoredType {
                    tensor,
                    expected: dtype,
                    got: var.dtype(),
                }
                .into());
            }
            return Ok(var.as_tensor().clone());
        }
        let mut values = draw(&mut store.rng, init, &shape);
        if let Some(bounds) = store.bounds.remove(name) {
            let bounds = bounds.iter().cycle();
            let pairs = values.iter_mut().zip(bounds);
            pairs.for_each(|(value, bound)| *value *= bound);
        }
        let tensor = Tensor::from_vec(values, shape, device)?.to_dtype(dtype)?;
        let var = Var::from_tensor(&tensor)?;
        let tensor = var.as_tensor().clone();
        store.variables.push((name.to_owned(), var));
        Ok(tensor)
    }

    fn get_unchecked(
        &self,
        name: &str,
        dtype: DType,
        device: &Device,
    ) -> candle_core::Result<Tensor> {
        let missing = || Error::MissingTensor {
            tensor: name.to_owned(),
        };
        let var = Parameters::get(self, name).ok_or_else(missing)?;
        var.to_device(device)?.to_dtype(dtype)
    }

    fn contains_tensor(&self, name: &str) -> bool {
        if let Some((layer, choice, value)) = choices::noted(name) {
            let mut store = self.lock();
            let choices = store.layers.entry(layer.to_owned()).or_default();
            choices.insert(choice.to_owned(), value.to_owned());
            return false;
        }
        if let Some((name, bounds)) = noted_bounds(name) {
            self.lock().bounds.insert(name.to_owned(), bounds);
            return true;
        }
        self.lock().find(name).is_some()
    }
}

/// The text between the name of a variable and its bounds.
const WITHIN: &str = " within ";

/// The parameter of a described layer, which is drawn if the builder does not have it.
///
/// # Errors
/// The errors of the builder.
pub(crate) fn started(
    vb: &VarBuilder,
    shape: &[usize],
    name: &str,
    start: &Start,
) -> candle_core::Result<Tensor> {
    let init = match *start {
        Start::Constant(value) => Init::Const(value),
        Start::Uniform { mean, bound } => Init::Uniform {
            lo: mean - bound,
            up: mean + bound,
        },
        Start::Normal(stdev) => Init::Randn { mean: 0.0, stdev },
        Start::Bounds(ref bounds) => return within(vb, shape, name, bounds),
    };
    vb.get_with_hints(shape, name, init)
}

/// A parameter that is drawn within a bound for each index of its last axis. An [`Init`] has one bound for all: [`Parameters`] are told the
/// others, and what other backends draw is multiplied by them.
fn within(
    vb: &VarBuilder,
    shape: &[usize],
    name: &str,
    bounds: &[f64],
) -> candle_core::Result<Tensor> {
    let is_known = vb.contains_tensor(name);
    let is_told = note_bounds(vb, name, bounds);
    let parameter = vb.get_with_hints(shape, name, uniform(1.0))?;
    if !is_known && !is_told && parameter.elem_count() > 0 {
        let bounds = Tensor::from_slice(bounds, bounds.len(), parameter.device())?;
        let drawn = parameter.detach();
        let drawn = drawn.broadcast_mul(&bounds.to_dtype(drawn.dtype())?)?;
        parameter.slice_set(&drawn, 0, 0)?;
    }
    Ok(parameter)
}

/// Tells the backend of a builder by what the values of a variable are multiplied when they are drawn: a number for each index of its last
/// axis. As choices are, it is told by a name that no tensor has. Returns whether the backend understood it.
fn note_bounds(vb: &VarBuilder, name: &str, bounds: &[f64]) -> bool {
    let bounds: Vec<String> = bounds.iter().map(|bound| bound.to_string()).collect();
    vb.contains_tensor(&format!("{name}{WITHIN}{}", bounds.join(",")))
}

fn noted_bounds(name: &str) -> Option<(&str, Vec<f64>)> {
    let (name, bounds) = name.split_once(WITHIN)?;
    let bounds = bounds.split(',').map(|bound| bound.parse().ok());
    Some((name, bounds.collect::<Option<Vec<f64>>>()?))
}

/// A uniform distribution around zero.
pub(crate) fn uniform(bound: f64) -> Init {
    Init::Uniform {
        lo: -bound,
        up: bound,
    }
}

/// Draws the elements of a variable.
fn draw(rng: &mut ChaCha8Rng, init: Init, shape: &Shape) -> Vec<f64> {
    let count = shape.elem_count();
    match init {
        Init::Const(value) => vec![value; count],
        Init::Randn { mean, stdev } => normal(rng, count, mean, stdev),
        Init::Uniform { lo, up } => draw_uniform(rng, count, lo, up),
        Init::Kaiming {
            dist,
            fan,
            non_linearity,
        } => {
            let fan = FanInOut::for_shape(&fan, shape).max(1);
            let stdev = non_linearity.gain() / (fan as f64).sqrt();
            match dist {
                NormalOrUniform::Normal => normal(rng, count, 0.0, stdev),
                NormalOrUniform::Uniform => {
                    let bound = 3f64.sqrt() * stdev;
                    draw_uniform(rng, count, -bound, bound)
                }
            }
        }
    }
}

fn normal(rng: &mut ChaCha8Rng, count: usize, mean: f64, stdev: f64) -> Vec<f64> {
    let mut next = || -> f64 { StandardNormal.sample(rng) };
    (0..count).map(|_| mean + stdev * next()).collect()
}

fn draw_uniform(rng: &mut ChaCha8Rng, count: usize, low: f64, high: f64) -> Vec<f64> {
    let mut next = || -> f64 { StandardUniform.sample(rng) };
    (0..count).map(|_| low + (high - low) * next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seed: u64, dtype: DType) -> Vec<f64> {
        let parameters = Parameters::seeded(seed);
        let builder = parameters.builder(dtype, &Device::Cpu);
        let init = Init::Randn {
            mean: 1.0,
            stdev: 2.0,
        };
        let tensor = builder.get_with_hints(20_000, "w", init).unwrap();
        tensor.to_dtype(DType::F64).unwrap().to_vec1().unwrap()
    }

    #[test]
    fn a_seed_decides_the_values() {
        assert_eq!(sample(3, DType::F64), sample(3, DType::F64));
        assert_ne!(sample(3, DType::F64), sample(4, DType::F64));
    }

    #[test]
    fn types_share_a_stream() {
        let (wide, narrow) = (sample(3, DType::F64), sample(3, DType::F32));
        for (wide, narrow) in wide.iter().zip(narrow) {
            assert_eq!(f64::from(*wide as f32), narrow);
        }
    }

    #[test]
    fn normal_values_have_their_moments() {
        let values = sample(5, DType::F64);
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
        // The tolerance is five standard errors.
        assert!((mean - 1.0).abs() < 5.0 * 2.0 / count.sqrt(), "{mean}");
        assert!(
            (variance - 4.0).abs() < 5.0 * 4.0 * (2.0 / count).sqrt(),
            "{variance}"
        );
    }

    #[test]
    fn a_known_name_must_keep_its_shape_and_its_type() {
        let parameters = Parameters::seeded(1);
        let builder = parameters.builder(DType::F32, &Device::Cpu);
        builder.get((2, 3), "w").unwrap();
        assert!(builder.get((2, 3), "w").is_ok());
        let error = builder.get((3, 2), "w").unwrap_err().to_string();
        assert!(error.contains('w') && error.contains("[2, 3]"), "{error}");
        let wide = parameters.builder(DType::F64, &Device::Cpu);
        let error = wide.get((2, 3), "w").unwrap_err().to_string();
        assert!(
            error.starts_with("w: expected type F64, got F32"),
            "{error}"
        );
        assert_eq!(parameters.element_count(), 6);
    }
}
