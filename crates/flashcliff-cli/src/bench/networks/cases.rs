//! What is measured of layers and networks, and at which sizes.

use cayley::Signature;
use flashcliff::Dtype;
use flashcliff_bench::Selection;
use flashcliff_candle::models::Architecture;

use super::layers::{self, Input, Layer};

/// The part that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    /// The forward pass of a layer.
    Forward,
    /// Both passes of a layer, with the gradients of the input and of all parameters.
    Both,
    /// Predictions of a network.
    Inference,
    /// Loss, gradients and a step of Adam of a network.
    Step,
}

impl Run {
    /// The name in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Both => "forward+backward",
            Self::Inference => "inference",
            Self::Step => "training step",
        }
    }
}

/// What runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    Layer(&'static Layer),
    Network(Architecture),
}

/// A layer or a network at a size.
#[derive(Clone, Debug)]
pub(in crate::bench) struct NetworkCase {
    pub(super) what: What,
    pub(super) run: Run,
    pub(super) signature: Signature,
    /// The batch: multivectors of a channel, or samples.
    pub(super) batch: usize,
    /// The channels of a layer.
    pub(super) channels: usize,
    /// The type of all tensors of a layer; of a network that of the values between layers.
    pub(super) dtype: Dtype,
    /// Whether the case is so small that targets mean nothing.
    pub(super) is_quick: bool,
}

impl NetworkCase {
    /// The name of the layer or of the network.
    pub(super) fn subject_name(&self) -> &'static str {
        match self.what {
            What::Layer(layer) => layer.name,
            What::Network(architecture) => architecture.name(),
        }
    }

    /// Whether it is a function of rotors.
    pub(super) fn is_of_rotors(&self) -> bool {
        matches!(self.what, What::Layer(layer) if layer.is_of_rotors)
    }

    /// The type of parameters. Training steps of 16 bits keep theirs in f32.
    pub(super) fn parameter_type(&self) -> Dtype {
        match (self.what, self.dtype) {
            (What::Network(_), Dtype::Bf16 | Dtype::F16) => Dtype::F32,
            (_, dtype) => dtype,
        }
    }

    /// The name in reports.
    pub(in crate::bench) fn name(&self) -> String {
        let (subject, run, algebra) = (self.subject_name(), self.run.name(), self.signature.name());
        let (batch, channels) = (self.batch, self.channels);
        let dtype = match self.dtype {
            Dtype::F32 => String::new(),
            dtype => format!(" {dtype}"),
        };
        match self.what {
            What::Layer(_) => format!("{subject} {algebra} {batch}x{channels}{dtype} {run}"),
            What::Network(_) => format!("{subject} {run} {algebra} batch {batch}{dtype}"),
        }
    }
}

/// A network with its algebra, and its batches on the CPU and on a GPU.
struct Network {
    architecture: Architecture,
    signature: Signature,
    batches: [usize; 2],
}

impl Network {
    /// Whether a part of it runs in a type on the CPU or a GPU: all in f32; training steps on a GPU in 16 bits, if the network has a plan.
    fn takes(&self, run: Run, dtype: Dtype, gpu: bool) -> bool {
        match dtype {
            Dtype::F32 => true,
            Dtype::Bf16 | Dtype::F16 => gpu && run == Run::Step && self.architecture.has_plan(),
            _ => false,
        }
    }
}

const NETWORKS: [Network; 4] = [
    Network {
        architecture: Architecture::Hulls,
        signature: Signature::of(5, 0, 0),
        batches: [128, 1024],
    },
    Network {
        // The width of CGENN.
        architecture: Architecture::Regression { width: 580 },
        signature: Signature::of(5, 0, 0),
        batches: [128, 1024],
    },
    Network {
        architecture: Architecture::Volumes,
        signature: Signature::of(3, 0, 0),
        batches: [128, 1024],
    },
    Network {
        architecture: Architecture::Gravity,
        signature: Signature::of(3, 0, 1),
        batches: [16, 128],
    },
];

/// The batch of a quick network.
const QUICK: usize = 8;

/// Batch and channels of layers, on the CPU and on a GPU.
const OF_MULTIVECTORS: [[usize; 2]; 2] = [[1024, 32], [4096, 128]];
/// Samples and multivector channels of layers of transformers.
const OF_TOKENS: [[usize; 2]; 2] = [[32, 8], [256, 16]];

/// Which layers and networks, beside operators. An empty list stands for the usual choice.
#[derive(Clone, Debug, Default)]
pub(in crate::bench) struct NetworkSelection {
    /// The names of layers.
    pub(in crate::bench) layers: Vec<String>,
    /// The names of networks.
    pub(in crate::bench) networks: Vec<String>,
    /// The operators that are chosen. If some are named, layers and networks are measured only if they are named too.
    /// Layers have the same algebras and sizes.
    pub(in crate::bench) chosen: Selection,
}

/// The types that layers are measured in on the CPU and on a GPU, if no type is chosen.
const TYPES: [[Dtype; 2]; 2] = [[Dtype::F32, Dtype::F64], [Dtype::F32, Dtype::Bf16]];

/// The types that networks are measured in, if no type is chosen and they take them.
const OF_NETWORKS: [Dtype; 3] = [Dtype::F32, Dtype::Bf16, Dtype::F16];

/// The names of all layers, and of the functions of rotors.
pub(in crate::bench) fn layer_names() -> Vec<&'static str> {
    layers::all().map(|layer| layer.name).collect()
}

/// The names of all networks.
pub(in crate::bench) fn network_names() -> Vec<&'static str> {
    let names = NETWORKS.iter().map(|network| network.architecture.name());
    names.collect()
}

impl NetworkSelection {
    /// The cases, in the types that layers and networks take.
    pub(in crate::bench) fn cases(&self) -> Vec<NetworkCase> {
        let mut cases = Vec::new();
        for layer in layers::all() {
            if self.wants(&self.layers, layer.name) {
                self.add_layer(layer, &mut cases);
            }
        }
        // Networks have their own algebra and channels.
        let is_restricted = !self.chosen.algebras.is_empty() || !self.chosen.shapes.is_empty();
        for network in &NETWORKS {
            let is_named = !self.networks.is_empty();
            if self.wants(&self.networks, network.architecture.name())
                && (is_named || !is_restricted)
            {
                self.add_network(network, &mut cases);
            }
        }
        cases
    }

    /// Whether a name is chosen: it is in the list, or nothing is named at all.
    fn wants(&self, list: &[String], name: &str) -> bool {
        let lists = [&self.layers, &self.networks];
        let nothing_is_named =
            self.chosen.operators.is_empty() && lists.iter().all(|list| list.is_empty());
        nothing_is_named || list.iter().any(|named| named == name)
    }

    fn add_layer(&self, layer: &'static Layer, cases: &mut Vec<NetworkCase>) {
        let (space, motions) = (Signature::of(3, 0, 0), Signature::of(3, 0, 1));
        let usual = match layer.input {
            Input::Tokens { .. } => vec![motions],
            // Rotors turn, motors move too.
            _ if layer.is_of_rotors => vec![space, motions],
            _ => vec![space],
        };
        let can_be = |signature: &Signature| match layer.input {
            // Transformers have one algebra.
            Input::Tokens { .. } => *signature == motions,
            _ => !layer.is_of_rotors || (2..=5).contains(&signature.dim()),
        };
        let algebras: Vec<Signature> = match &self.chosen.algebras[..] {
            [] => usual,
            list => list.iter().copied().filter(can_be).collect(),
        };
        let dtypes = match &self.chosen.dtypes[..] {
            [] => &TYPES[usize::from(self.chosen.gpu)],
            list => list,
        };
        let dtypes = dtypes.iter().copied();
        let dtypes: Vec<Dtype> = dtypes
            .filter(|&dtype| layer.takes(dtype, self.chosen.gpu))
            .collect();
        let mut sizes: Vec<[usize; 2]> = self
            .chosen
            .shapes
            .iter()
            .map(|dims| [dims.batch, dims.in_channels])
            .collect();
        if sizes.is_empty() {
            let of_devices = match layer.is_of_tokens() {
                true => OF_TOKENS,
                false => OF_MULTIVECTORS,
            };
            let [batch, channels] = of_devices[usize::from(self.chosen.gpu)];
            sizes.push(match (self.chosen.quick, layer.is_of_tokens()) {
                (false, _) => [batch, channels],
                (true, false) => [batch.div_ceil(32), channels.div_ceil(4)],
                (true, true) => [batch.div_ceil(8), channels.div_ceil(4)],
            });
        }
        for signature in algebras {
            for &[batch, channels] in &sizes {
                for &dtype in &dtypes {
                    for run in [Run::Forward, Run::Both] {
                        cases.push(NetworkCase {
                            what: What::Layer(layer),
                            run,
                            signature,
                            batch,
                            channels,
                            dtype,
                            is_quick: self.chosen.quick,
                        });
                    }
                }
            }
        }
    }

    fn add_network(&self, network: &Network, cases: &mut Vec<NetworkCase>) {
        let dtypes = match &self.chosen.dtypes[..] {
            [] => &OF_NETWORKS,
            list => list,
        };
        for run in [Run::Inference, Run::Step] {
            for &dtype in dtypes {
                if !network.takes(run, dtype, self.chosen.gpu) {
                    continue;
                }
                cases.push(NetworkCase {
                    what: What::Network(network.architecture),
                    run,
                    signature: network.signature,
                    batch: match self.chosen.quick {
                        true => QUICK,
                        false => network.batches[usize::from(self.chosen.gpu)],
                    },
                    channels: 0,
                    dtype,
                    is_quick: self.chosen.quick,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use flashcliff::Dims;

    use super::*;

    fn of_layers(chosen: Selection) -> NetworkSelection {
        NetworkSelection {
            chosen,
            ..NetworkSelection::default()
        }
    }

    fn names(selection: &NetworkSelection) -> Vec<String> {
        selection.cases().iter().map(NetworkCase::name).collect()
    }

    #[test]
    fn all_layers_and_networks_are_the_usual_choice() {
        let all = names(&NetworkSelection::default());
        let layers = layers::all();
        let of_layers = layers.map(|layer| if layer.is_of_rotors { 8 } else { 4 });
        assert_eq!(all.len(), of_layers.sum::<usize>() + 2 * NETWORKS.len());
        let mut unique = all.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), all.len());
        assert!(all.contains(&"hulls training step cl500 batch 128".to_owned()));
    }

    #[test]
    fn what_is_named_leaves_out_the_rest() {
        let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let named = |layers: &[&str], networks: &[&str], operators: &[&str]| NetworkSelection {
            layers: owned(layers),
            networks: owned(networks),
            chosen: Selection {
                operators: owned(operators),
                ..Selection::default()
            },
        };
        assert!(names(&named(&[], &[], &["gate"])).is_empty());
        assert_eq!(names(&named(&["MVSiLU"], &[], &["gate"])).len(), 4);
        let volumes = [
            "volumes inference cl300 batch 128",
            "volumes training step cl300 batch 128",
        ];
        assert_eq!(names(&named(&[], &["volumes"], &[])), volumes);
    }

    #[test]
    fn layers_have_the_types_that_their_device_takes() {
        let of = |dtype, gpu| {
            let dtypes = vec![dtype];
            names(&of_layers(Selection {
                dtypes,
                gpu,
                ..Selection::default()
            }))
        };
        let single = of(Dtype::F32, true);
        let double = of(Dtype::F64, true);
        assert_eq!(single.len(), double.len() + 2 * NETWORKS.len());
        assert!(double.iter().all(|name| name.contains(" f64 ")));
        for dtype in [Dtype::Bf16, Dtype::F16] {
            assert!(of(dtype, false).is_empty());
            let halves = of(dtype, true);
            assert!(halves.contains(&format!("MVLinear cl300 4096x128 {dtype} forward")));
            assert!(!halves.iter().any(|name| name.starts_with("Block")));
            let of_networks = halves.iter().filter(|name| name.contains(" batch "));
            let expected = [
                format!("hulls training step cl500 batch 1024 {dtype}"),
                format!("regression training step cl500 batch 1024 {dtype}"),
                format!("volumes training step cl300 batch 1024 {dtype}"),
            ];
            assert!(of_networks.eq(&expected), "{halves:?}");
        }
    }

    /// The usual choice on a GPU has the steps of 16 bits too.
    #[test]
    fn networks_run_in_each_type_that_their_device_takes() {
        let of = |gpu| {
            let all = of_layers(Selection {
                gpu,
                ..Selection::default()
            });
            let networks = network_names().iter().map(ToString::to_string).collect();
            names(&NetworkSelection { networks, ..all }).len()
        };
        let with_plan = NETWORKS.iter().filter(|n| n.architecture.has_plan());
        assert_eq!(of(false), 2 * NETWORKS.len());
        assert_eq!(of(true), 2 * NETWORKS.len() + 2 * with_plan.count());
    }

    #[test]
    fn algebras_and_shapes_are_those_of_layers() {
        let selection = of_layers(Selection {
            algebras: vec![Signature::of(2, 0, 0)],
            shapes: vec![Dims {
                batch: 5,
                in_channels: 4,
                out_channels: 4,
                scalar_channels: 0,
            }],
            ..Selection::default()
        });
        let names = names(&selection);
        assert!(
            names.iter().all(|name| name.contains("cl200 5x4")),
            "{names:?}"
        );
        assert!(!names.iter().any(|name| name.starts_with("Block")));
    }
}
