//! What a call of XLA computes, by the content that stands in its attributes.
//!
//! The content is the operator itself, as files of networks have it, with the steps to a derivative. So a compiled
//! function that was stored, or that runs in another process, names no object of this one. The digest finds what was
//! read before.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use flashcliff::Operator;
use flashcliff_network::file::operator_from_json;
use serde::Deserialize;

use super::failure::Failure;
use crate::cuda::Devices;

/// The most targets that are kept.
const MOST: usize = 4096;

/// An operator, as text.
#[derive(Debug, Deserialize, Eq, Hash, PartialEq)]
struct Content {
    /// The operator of the table or of a program, as [`operator_from_json`] reads it.
    operator: String,
    /// The steps to a derivative: `g` to the gradient, `t` to the tangent, `s` and a digit for each output to some outputs.
    steps: String,
    block_bytes: Option<usize>,
}

/// The text of a target.
#[derive(Debug, Deserialize)]
struct Description {
    #[serde(flatten)]
    content: Content,
    #[serde(flatten)]
    pass: Pass,
}

/// What a call is given and what it wants.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Pass {
    /// Whether matrix products may use TF32.
    pub(super) tf32: bool,
    /// Forward: whether what the backward pass reads is a result. Backward: whether it is an argument.
    #[serde(default)]
    pub(super) saved: bool,
    /// Whether the backward pass has the output as an argument.
    #[serde(default)]
    pub(super) output: bool,
    /// Whether the backward pass has no inputs, because the operator is linear.
    #[serde(default)]
    pub(super) linear: bool,
    /// Which gradients the backward pass makes.
    #[serde(default)]
    pub(super) wanted: Vec<bool>,
}

/// An operator on the CPU and on GPUs.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) operator: Operator,
    pub(super) devices: Devices,
}

/// What a call computes.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) bound: Arc<Bound>,
    pub(super) pass: Arc<Pass>,
}

type Kept<K, V> = LazyLock<Mutex<HashMap<K, V>>>;

static TARGETS: Kept<String, Target> = LazyLock::new(Mutex::default);
static BOUND: Kept<Content, Arc<Bound>> = LazyLock::new(Mutex::default);

impl Target {
    /// The target of a text; `digest` is its digest.
    pub(super) fn of(digest: &str, text: &str) -> Result<Self, Failure> {
        if let Some(found) = lock(&TARGETS).get(digest) {
            return Ok(found.clone());
        }
        let made = Self::read(text)?;
        keep(&TARGETS, digest.to_owned(), made.clone());
        Ok(made)
    }

    fn read(text: &str) -> Result<Self, Failure> {
        let described = serde_json::from_str::<Description>(text);
        let Description { content, pass } = described
            .map_err(|error| Failure::refused(format!("the attribute `target`: {error}")))?;
        Ok(Self {
            bound: Bound::of(content)?,
            pass: Arc::new(pass),
        })
    }
}

impl Bound {
    fn of(content: Content) -> Result<Arc<Self>, Failure> {
        if let Some(found) = lock(&BOUND).get(&content) {
            return Ok(Arc::clone(found));
        }
        let base = operator_from_json(&content.operator)?;
        let made = Arc::new(Self {
            operator: derived(Arc::unwrap_or_clone(base), &content.steps)?,
            devices: Devices::new(content.block_bytes),
        });
        keep(&BOUND, content, Arc::clone(&made));
        Ok(made)
    }
}

/// The derivative that steps lead to.
fn derived(base: Operator, steps: &str) -> Result<Operator, Failure> {
    let (mut made, mut steps) = (base, steps);
    while let Some(step) = steps.chars().next() {
        steps = &steps[step.len_utf8()..];
        made = match step {
            'g' => made.gradient()?,
            't' => made.tangent()?,
            's' => {
                let count = made.outputs().len();
                let Some((wanted, rest)) = steps.split_at_checked(count) else {
                    return Err(unknown(steps));
                };
                steps = rest;
                let wanted: Vec<bool> = wanted.chars().map(|digit| digit == '1').collect();
                made.selecting(&wanted)?
            }
            _ => return Err(unknown(steps)),
        };
    }
    Ok(made)
}

fn unknown(steps: &str) -> Failure {
    Failure::refused(format!("expected steps to a derivative, got `{steps}`"))
}

fn lock<K, V>(kept: &Kept<K, V>) -> std::sync::MutexGuard<'_, HashMap<K, V>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

fn keep<K: Eq + std::hash::Hash, V>(kept: &Kept<K, V>, key: K, value: V) {
    let mut kept = lock(kept);
    if kept.len() >= MOST {
        kept.clear();
    }
    kept.insert(key, value);
}
