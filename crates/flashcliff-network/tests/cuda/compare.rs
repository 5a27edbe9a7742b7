//! Runs of a network on the GPU, beside one on the CPU.

use std::sync::Arc;
use std::thread;

use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
use flashcliff::cuda::{self, DeviceElement, Graph, MatmulPrecision, launches};
use flashcliff::{Dtype, Element};
use flashcliff_network::cuda::{
    Course, DeviceSegments, Gpu, Lent, Memory, Moment, Replays, Sequences,
};
use flashcliff_network::tokens::Draw;
use flashcliff_network::{Error, Keep, Network, Rows, Scales, Segments, Value};

use crate::networks::{numbers, random};
use crate::runs::{F64, room, run};
use crate::trials::device;

/// A network with the value that it computes, the seed of gradients, and the inputs that have gradients too.
pub(crate) struct Case {
    pub(crate) network: Network,
    pub(crate) output: Value,
    pub(crate) seed: Value,
    pub(crate) by: Vec<Value>,
    /// The number of parameters that the output does not depend on.
    pub(crate) unread: usize,
    pub(crate) rows: Rows,
    /// The bounds of sequences of items, and of the sequences of their contexts.
    pub(crate) sequences: Option<[Vec<usize>; 2]>,
    pub(crate) draw: Option<Draw>,
    /// An input with its own numbers.
    pub(crate) given: Option<(Value, Vec<f64>)>,
    pub(crate) relations: Vec<Segments>,
}

impl Case {
    pub(crate) fn new(network: Network, [output, seed]: [Value; 2], rows: Rows) -> Self {
        Self {
            network,
            output,
            seed,
            by: Vec::new(),
            unread: 0,
            rows,
            sequences: None,
            draw: None,
            given: None,
            relations: Vec::new(),
        }
    }

    fn scales(&self) -> Scales<'_> {
        Scales {
            draw: self.draw,
            sequences: self
                .sequences
                .as_ref()
                .map(|own| own.each_ref().map(Vec::as_slice)),
            relations: &self.relations,
            ..Scales::default()
        }
    }
}

/// A network with its gradients, and its numbers.
pub(crate) struct Whole<'a> {
    case: &'a Case,
    network: Network,
    outputs: Vec<Value>,
    inputs: Vec<Vec<f64>>,
    parameters: Vec<Vec<f64>>,
}

impl<'a> Whole<'a> {
    /// A network without gradients.
    pub(crate) fn of_values<T: Element>(case: &'a Case) -> Self {
        Self::of::<T>(case, case.network.clone(), vec![case.output])
    }

    pub(crate) fn new<T: Element>(case: &'a Case, keep: Keep) -> Self {
        let mut network = case.network.clone();
        let mut by = case.by.clone();
        by.extend(network.parameters());
        let pairs = network
            .gradients_by(case.output, case.seed, &by, keep)
            .unwrap();
        assert_eq!(
            pairs.len() + case.unread,
            by.len(),
            "each that is read has a gradient"
        );
        let mut outputs = vec![case.output];
        outputs.extend(pairs.iter().map(|&(_, gradient)| gradient));
        Self::of::<T>(case, network, outputs)
    }

    fn of<T: Element>(case: &'a Case, network: Network, outputs: Vec<Value>) -> Self {
        // What the type can represent, and parameters that do not let numbers grow.
        let rounded = |all: Vec<Vec<f64>>, factor: f64| -> Vec<Vec<f64>> {
            let round = |x: f64| T::from_f64(factor * x).to_f64();
            let tensors = all.into_iter();
            tensors
                .map(|own| own.into_iter().map(round).collect())
                .collect()
        };
        let mut inputs = rounded(numbers(&network, network.inputs(), case.rows, 1), 1.0);
        if let Some((value, own)) = &case.given {
            let at = network.inputs().iter().position(|input| input == value);
            inputs[at.unwrap()] = rounded(vec![own.clone()], 1.0).remove(0);
        }
        let parameters = numbers(&network, network.parameters(), case.rows, 101);
        Self {
            case,
            outputs,
            inputs,
            parameters: rounded(parameters, 0.5),
            network,
        }
    }

    /// The largest change of an output, of the largest number of its tensor, where each number of the inputs and parameters is off by
    /// some of itself, up or down: the largest of a few trials.
    fn change_by_rounding(&self, by: f64) -> f64 {
        const TRIALS: u64 = 4;
        let scales = self.case.scales();
        let exact = self.on_cpu(scales);
        let rounded = |all: &[Vec<f64>], seed: u64| -> Vec<Vec<f64>> {
            let tensors = all.iter().zip(seed..).map(|(own, seed)| {
                let signs = random(own.len(), seed).into_iter().map(f64::signum);
                let pairs = own.iter().zip(signs);
                pairs.map(|(x, sign)| x * (1.0 + sign * by)).collect()
            });
            tensors.collect()
        };
        let trials = (1..=TRIALS).map(|trial| {
            let changed = Self {
                case: self.case,
                network: self.network.clone(),
                outputs: self.outputs.clone(),
                inputs: rounded(&self.inputs, 1000 * trial),
                parameters: rounded(&self.parameters, 1000 * trial + 500),
            };
            let outputs = changed.on_cpu(scales);
            let pairs = outputs.iter().zip(&exact);
            let errors = pairs.filter_map(|(own, exact)| worst(own, exact));
            errors.map(|(_, error)| error).fold(0.0, f64::max)
        });
        trials.fold(0.0, f64::max)
    }

    /// The outputs of a run on the CPU in `f64`.
    fn on_cpu(&self, scales: Scales<'_>) -> Vec<Vec<f64>> {
        let plan = self.network.plan(&self.outputs, self.case.rows, F64);
        let plan = plan.unwrap();
        run(&plan, [&self.inputs, &self.parameters], scales)
    }
}

/// A plan on the GPU with its tensors.
pub(crate) struct There<'a, T> {
    whole: &'a Whole<'a>,
    pub(crate) stream: Arc<CudaStream>,
    pub(crate) gpu: Gpu,
    /// The memory of each stage, and what stages keep.
    memory: Vec<Memory>,
    kept: CudaSlice<u8>,
    inputs: Vec<CudaSlice<T>>,
    parameters: Vec<CudaSlice<T>>,
    outputs: Vec<CudaSlice<T>>,
    bounds: [CudaSlice<i32>; 2],
    step: CudaSlice<u32>,
    relations: Vec<DeviceSegments>,
    /// The graphs of runs that come again, with the memory of each stage.
    again: Option<(Replays, Vec<CudaSlice<u8>>)>,
}

impl<'a, T: DeviceElement + Element> There<'a, T> {
    pub(crate) fn new(whole: &'a Whole<'a>, precision: MatmulPrecision) -> Self {
        Self::of(whole, &[&whole.outputs], (<T as Element>::DTYPE, precision))
    }

    /// With another type of features.
    fn with_features(whole: &'a Whole<'a>, features: Dtype) -> Self {
        Self::of(whole, &[&whole.outputs], (features, MatmulPrecision::Tf32))
    }

    /// The result in one stage, the gradients in another.
    pub(crate) fn in_two_stages(whole: &'a Whole<'a>, precision: MatmulPrecision) -> Self {
        let (result, gradients) = whole.outputs.split_at(1);
        let dtype = <T as Element>::DTYPE;
        Self::of(whole, &[result, gradients], (dtype, precision))
    }

    fn of(
        whole: &'a Whole<'a>,
        stages: &[&[Value]],
        (features, precision): (Dtype, MatmulPrecision),
    ) -> Self {
        let (case, stream) = (whole.case, device().new_stream().unwrap());
        let gpu = Gpu::new(
            &whole.network,
            stages,
            case.rows,
            [features, <T as Element>::DTYPE],
            device(),
            precision,
        )
        .unwrap();
        let upload = |all: &[Vec<f64>]| -> Vec<CudaSlice<T>> {
            let tensors = all.iter().map(|own| {
                let own: Vec<T> = own.iter().map(|&x| T::from_f64(x)).collect();
                stream.clone_htod(&own).unwrap()
            });
            tensors.collect()
        };
        let bounds = [0, 1].map(|set| {
            let own = case.sequences.iter().flat_map(|own| &own[set]);
            // An allocation of no bytes is an error for some drivers.
            let own = own.map(|&bound| i32::try_from(bound).unwrap()).chain([0]);
            stream.clone_htod(&own.collect::<Vec<i32>>()).unwrap()
        });
        Self {
            memory: (0..stages.len())
                .map(|stage| gpu.allocate(stage, &stream).unwrap())
                .collect(),
            // An allocation of no bytes is an error for some drivers.
            kept: stream.alloc_zeros(gpu.plan().kept_bytes().max(1)).unwrap(),
            inputs: upload(&whole.inputs),
            parameters: upload(&whole.parameters),
            outputs: upload(&room(gpu.plan())),
            bounds,
            step: stream
                .clone_htod(&[case.draw.map_or(0, |draw| draw.step)])
                .unwrap(),
            relations: case
                .relations
                .iter()
                .map(|own| DeviceSegments::new(&stream, own).unwrap())
                .collect(),
            again: None,
            stream,
            gpu,
            whole,
        }
    }

    /// Replays runs of two stages that come again.
    fn replays(mut self) -> Self {
        let spaces = (0..2).map(|stage| {
            let bytes = self.gpu.memory_bytes(stage).max(1);
            self.stream.alloc_zeros(bytes).unwrap()
        });
        self.again = Some((Replays::default(), spaces.collect()));
        self
    }

    /// Launches the plan, and calls a function with the outputs at each stop of its only stage.
    fn launch(
        &mut self,
        course: Course<'_>,
        at_stop: &mut dyn FnMut(usize, &[CudaSlice<T>]),
    ) -> Result<(), Error> {
        let (case, stream) = (self.whole.case, self.stream.clone());
        let tensors =
            |values: &[Value], data: &'_ [CudaSlice<T>]| -> Vec<(CUdeviceptr, Vec<usize>)> {
                let shapes = values.iter().map(|&value| {
                    let axes = self.whole.network.shape(value).unwrap().iter();
                    axes.map(|axis| axis.size(case.rows)).collect()
                });
                let addresses = data.iter().map(|own| own.device_ptr(&stream).0);
                addresses.zip(shapes).collect()
            };
        let inputs = tensors(self.whole.network.inputs(), &self.inputs);
        let parameters = tensors(self.whole.network.parameters(), &self.parameters);
        let raw = |all: &'_ [(CUdeviceptr, Vec<usize>)]| -> Vec<cuda::Tensor<'_>> {
            let tensors = all.iter().map(|(address, shape)| {
                let dtype = <T as Element>::DTYPE;
                // SAFETY: the address is that of a tensor of this shape, which lives as long as this.
                unsafe { cuda::Tensor::from_raw(*address, dtype, shape, device().ordinal()) }
                    .unwrap()
            });
            tensors.collect()
        };
        let (inputs, parameters) = (raw(&inputs), raw(&parameters));
        let outputs = self.outputs.iter().map(|own| own.device_ptr(&stream).0);
        let outputs: Vec<CUdeviceptr> = outputs.collect();
        let sequences = case.sequences.as_ref().map(|own| {
            [0, 1].map(|set| Sequences {
                bounds: &own[set],
                address: self.bounds[set].device_ptr(&stream).0,
            })
        });
        let draw = case.draw.map(|draw| flashcliff_network::cuda::Draw {
            key: draw.key,
            step: self.step.device_ptr(&stream).0,
        });
        let relations = self.relations.iter().map(DeviceSegments::addresses);
        let relations: Vec<_> = relations.collect();
        let lent = Lent {
            inputs: &inputs,
            parameters: &parameters,
            outputs: &outputs,
            kept: self.kept.device_ptr(&stream).0,
            error_scale: 1.0,
            adds_error: false,
            loss_scale: None,
            sequences,
            draw,
            relations: &relations,
        };
        let two_stages = self.memory.len() == 2;
        for (stage, memory) in self.memory.iter_mut().enumerate() {
            // The first of two stages has one output.
            let outputs = match two_stages && stage == 0 {
                true => &outputs[..1],
                false => &outputs[..],
            };
            let lent = Lent { outputs, ..lent };
            if let Some((replays, spaces)) = &self.again {
                let place = (stage, spaces[stage].device_ptr(&stream).0);
                // SAFETY: as below.
                unsafe { self.gpu.run_again(replays, place, &stream, lent) }?;
                continue;
            }
            let mut watch = |moment| {
                if let Moment::Stop(number) = moment {
                    at_stop(number, &self.outputs);
                }
                Ok::<(), Error>(())
            };
            // SAFETY: outputs have the elements of the plan's, all live as long as this, and the stream is waited for before they are read.
            unsafe { self.gpu.run(memory, &stream, lent, course, &mut watch) }?;
        }
        Ok(())
    }

    /// The outputs, each as it is after the call that completes it.
    pub(crate) fn at_stops(&mut self) -> Vec<Vec<f64>> {
        self.forget();
        let (plan, stream) = (self.gpu.plan(), self.stream.clone());
        let stops = (0..plan.outputs().len()).map(|output| plan.completed_by(output).unwrap());
        let stops: Vec<usize> = stops.collect();
        let course = Course {
            forks: false,
            stops: &stops,
        };
        let mut found = vec![Vec::new(); stops.len()];
        let mut at_stop = |number: usize, outputs: &[CudaSlice<T>]| {
            let own: Vec<T> = stream.clone_dtoh(&outputs[number]).unwrap();
            stream.synchronize().unwrap();
            found[number] = own.into_iter().map(Element::to_f64).collect();
        };
        self.launch(course, &mut at_stop).unwrap();
        found
    }

    /// The outputs of a captured graph with branches.
    pub(crate) fn captured(&mut self) -> (Graph, Vec<Vec<f64>>) {
        let stream = self.stream.clone();
        let course = Course {
            forks: true,
            stops: &[],
        };
        let graph = Graph::capture(&stream, || self.launch(course, &mut |_, _| {})).unwrap();
        self.forget();
        graph.launch().unwrap();
        let outputs = self.outputs();
        (graph, outputs)
    }

    /// The outputs of a graph that a thread captured while a capture of the same plan by another went on.
    fn captured_beside_a_capture(&mut self) -> Vec<Vec<f64>> {
        let course = Course {
            forks: true,
            stops: &[],
        };
        let [first, second] = [self.stream.clone(), device().new_stream().unwrap()];
        let mut inner = None;
        let outer = Graph::capture(&first, || {
            self.launch(course, &mut |_, _| {})?;
            self.stream = second.clone();
            let other = || Graph::capture(&second, || self.launch(course, &mut |_, _| {}));
            let found = thread::scope(|scope| scope.spawn(other).join());
            self.stream = first.clone();
            inner = Some(found.unwrap());
            Ok::<(), Error>(())
        });
        outer.unwrap();
        self.forget();
        self.stream.synchronize().unwrap();
        inner.unwrap().unwrap().launch().unwrap();
        second.synchronize().unwrap();
        self.outputs()
    }

    /// The names of the kernels of the plan, in order, for the sequences of the case.
    pub(crate) fn listed(&self) -> Vec<String> {
        let sequences = self.whole.case.sequences.as_ref();
        let sequences = sequences.map(|own| {
            own.each_ref().map(|bounds| Sequences {
                bounds,
                ..Sequences::default()
            })
        });
        let kernels = self.gpu.kernels(sequences).unwrap();
        let plan = self.gpu.plan();
        let stages = (0..plan.stage_count()).flat_map(|stage| {
            let calls = plan.calls(stage).flat_map(|call| kernels.of_call(call));
            calls.chain(kernels.after(stage))
        });
        stages.cloned().collect()
    }

    /// Forgets the outputs, so that a run that writes none of them is seen.
    fn forget(&mut self) {
        for own in &mut self.outputs {
            let nothing = vec![T::from_f64(f64::NAN); own.len()];
            self.stream.memcpy_htod(&nothing, own).unwrap();
        }
    }

    fn outputs(&self) -> Vec<Vec<f64>> {
        let outputs = self.outputs.iter().map(|own| {
            let own: Vec<T> = self.stream.clone_dtoh(own).unwrap();
            own.into_iter().map(Element::to_f64).collect()
        });
        let outputs = outputs.collect();
        self.stream.synchronize().unwrap();
        outputs
    }

    pub(crate) fn eager(&mut self) -> Vec<Vec<f64>> {
        self.forget();
        let course = Course {
            forks: false,
            stops: &[],
        };
        self.launch(course, &mut |_, _| {}).unwrap();
        self.outputs()
    }
}

/// Compares the kernels that a plan lists with those that a run launches. A list is of a run with dropout, which is a
/// copy elsewhere.
pub(crate) fn compare_kernels<T: DeviceElement + Element>(name: &str, there: &mut There<'_, T>) {
    let mut listed = there.listed();
    if there.whole.case.draw.is_none() {
        let dropped = listed.iter_mut().filter(|own| *own == "fc_drop");
        dropped.for_each(|own| *own = "cuMemcpyDtoDAsync".to_owned());
    }
    let (_, launched) = launches::noted(|| there.eager());
    assert!(!launched.is_empty(), "{name}: nothing was launched");
    assert_eq!(listed, launched, "{name}: kernels");
}

/// Compares in both types, with all values kept and with blocks that are computed again.
pub(crate) fn compare(name: &str, case: &Case) {
    compare_within(name, case, [1e-12, 1e-4]);
}

/// Compares gradients of gradients, some of which magnify what `f32` rounds. Their bound follows from how much the exact results change
/// where each number of the case changes by the rounding of `f32`.
pub(crate) fn compare_second(name: &str, case: &Case) {
    let by = f64::from(f32::EPSILON) / 2.0;
    let change = Whole::new::<f32>(case, Keep::All).change_by_rounding(by);
    compare_within(name, case, [1e-12, (ROUNDINGS * change).max(1e-4)]);
}

/// Compares gradients of an order. Each order above the first parts the directions of a product in three ways, of which each
/// rounds.
pub(crate) fn compare_order(name: &str, case: &Case, order: i32) {
    let by = f64::from(f32::EPSILON) / 2.0;
    let change = Whole::new::<f32>(case, Keep::All).change_by_rounding(by);
    let roundings = 3_f64.powi(order - 1) * ROUNDINGS * change / by;
    let bounds = [f64::EPSILON / 2.0, by].map(|by| roundings * by);
    compare_within(name, case, [bounds[0].max(1e-12), bounds[1].max(1e-4)]);
}

/// The bound of errors, as changes of results by one rounding of each number of a case. Each number between these and the
/// results is rounded too.
const ROUNDINGS: f64 = 8.0;

fn compare_within(name: &str, case: &Case, [in_f64, in_f32]: [f64; 2]) {
    let precision = MatmulPrecision::Highest;
    compare_as::<f64>(&format!("{name}, f64"), case, precision, in_f64);
    compare_as::<f32>(&format!("{name}, f32"), case, precision, in_f32);
}

/// Compares in `f32`, where products may round to TF32: 10 bits of fraction.
pub(crate) fn compare_in_tf32(name: &str, case: &Case) {
    compare_as::<f32>(name, case, MatmulPrecision::Tf32, 2e-3);
}

/// Compares a network without gradients in TF32. The bound follows from the change of exact results by one rounding. Gives back the
/// names of the plan's calls that have something to do.
pub(crate) fn compare_values_in_tf32(name: &str, case: &Case) -> Vec<String> {
    let whole = Whole::of_values::<f32>(case);
    let expected = whole.on_cpu(case.scales());
    let bound = ROUNDINGS * whole.change_by_rounding(TF32 / 2.0);
    let mut there = There::<f32>::new(&whole, MatmulPrecision::Tf32);
    let got = there.eager();
    assert_close(&got, &expected, bound, name);
    assert_same(&there.eager(), &got, &format!("{name}, again"));
    compare_kernels(name, &mut there);
    let (_, captured) = there.captured();
    assert_same(&captured, &got, &format!("{name}, captured"));
    let plan = there.gpu.plan();
    let busy = (0..plan.call_count()).filter(|&call| !plan.is_idle(call));
    busy.map(|call| plan.work(call).name().to_owned()).collect()
}

/// Compares plans whose tokens between steps have 16 bits, by norms: sums that vanish have errors of what they add up. TF32 has as
/// large errors, but for the digits of the type.
pub(crate) fn compare_in_16_bits(name: &str, case: &Case) {
    let whole = Whole::new::<f32>(case, Keep::All);
    let expected = whole.on_cpu(case.scales());
    let mut wide = There::<f32>::new(&whole, MatmulPrecision::Tf32);
    let of_tf32 = distance(&wide.eager(), &expected);
    for (features, rounding) in [(Dtype::Bf16, 1.0 / 256.0), (Dtype::F16, TF32)] {
        let name = format!("{name}, {features}");
        let bound = (4.0 * of_tf32).max(4.0 * TF32) * rounding / TF32;
        let check = |got: &[Vec<f64>], what: &str| {
            let error = distance(got, &expected);
            assert!(
                error < bound,
                "{name}{what}: {error:e}, {of_tf32:e} in TF32"
            );
        };
        let mut there = There::<f32>::with_features(&whole, features);
        let got = there.eager();
        check(&got, "");
        assert_same(&there.eager(), &got, &format!("{name}, again"));
        compare_kernels(&name, &mut there);
        let (_, captured) = there.captured();
        assert_same(&captured, &got, &format!("{name}, captured"));
        let [narrow, wide] = [&there, &wide].map(|own| own.gpu.plan().arena_bytes());
        assert!(narrow < wide, "{name}: {narrow} bytes, {wide} in f32");
        for keep in [Keep::BetweenBlocks, Keep::Maps] {
            let again = Whole::new::<f32>(case, keep);
            let got = There::<f32>::with_features(&again, features).eager();
            check(&got, &format!(", {keep:?}"));
        }
    }
}

/// The norm of the error of all outputs, by the norm of all outputs.
fn distance(got: &[Vec<f64>], expected: &[Vec<f64>]) -> f64 {
    let pairs = got.iter().flatten().zip(expected.iter().flatten());
    let [error, all] = pairs.fold([0.0; 2], |[error, all], (got, expected)| {
        [error + (got - expected).powi(2), all + expected.powi(2)]
    });
    f64::sqrt(error / all)
}

/// The distance of numbers of TF32 from 1 on: 10 bits of fraction.
const TF32: f64 = 1.0 / 1024.0;

/// Compares in one type.
fn compare_as<T: DeviceElement + Element>(
    name: &str,
    case: &Case,
    precision: MatmulPrecision,
    bound: f64,
) {
    let whole = Whole::new::<T>(case, Keep::All);
    let expected = whole.on_cpu(case.scales());
    let mut there = There::<T>::new(&whole, precision);
    let got = there.eager();
    assert_close(&got, &expected, bound, name);
    assert_same(&there.eager(), &got, &format!("{name}, again"));
    compare_kernels(name, &mut there);
    let (graph, captured) = there.captured();
    assert_same(&captured, &got, &format!("{name}, captured"));
    let beside = there.captured_beside_a_capture();
    assert_same(&beside, &got, &format!("{name}, two captures at once"));
    if let Some(draw) = case.draw {
        // The number of the pass is read when the graph runs.
        let later = Draw {
            step: draw.step + 5,
            ..draw
        };
        let (step, scales) = ([later.step], case.scales());
        there.stream.memcpy_htod(&step, &mut there.step).unwrap();
        graph.launch().unwrap();
        let draw = Some(later);
        let expected = whole.on_cpu(Scales { draw, ..scales });
        assert_close(
            &there.outputs(),
            &expected,
            bound,
            &format!("{name}, later"),
        );
    }
    compare_replays::<T>(name, &whole, precision, (&expected, bound));
    for keep in [Keep::BetweenBlocks, Keep::Maps] {
        let again = Whole::new::<T>(case, keep);
        let got = There::<T>::new(&again, precision).eager();
        assert_close(&got, &expected, bound, &format!("{name}, {keep:?}"));
    }
}

/// Compares runs in the same memory: the first two are launched call by call and captured, the others are replays.
fn compare_replays<T: DeviceElement + Element>(
    name: &str,
    whole: &Whole<'_>,
    precision: MatmulPrecision,
    (expected, bound): (&[Vec<f64>], f64),
) {
    let mut there = There::<T>::in_two_stages(whole, precision).replays();
    let first = there.eager();
    assert_close(&first, expected, bound, &format!("{name}, two stages"));
    for run in 2..5 {
        assert_same(&there.eager(), &first, &format!("{name}, run {run}"));
    }
    let count = there.again.as_ref().map(|(replays, _)| replays.count());
    assert_eq!(count, Some(4), "{name}: replays of two stages");
    // Another place of an output is another run.
    let outputs = there.outputs.iter();
    there.outputs = outputs
        .map(|own| there.stream.clone_dtod(own).unwrap())
        .collect();
    assert_same(&there.eager(), &first, &format!("{name}, elsewhere"));
    let count = there.again.as_ref().map(|(replays, _)| replays.count());
    assert_eq!(count, Some(4), "{name}: outputs elsewhere");
}

pub(crate) fn assert_close(got: &[Vec<f64>], expected: &[Vec<f64>], bound: f64, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (number, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert_eq!(got.len(), expected.len(), "{what}, output {number}");
        let Some((worst, error)) = worst(got, expected) else {
            continue;
        };
        assert!(
            error <= bound,
            "{what}, output {number}, element {worst}: expected {}, got {}, {error:e} of the largest",
            expected[worst],
            got[worst],
        );
    }
}

/// The element of a tensor that is off by most, and its error by the tensor's largest number, or by one if that is more.
fn worst(got: &[f64], expected: &[f64]) -> Option<(usize, f64)> {
    let largest = expected.iter().fold(1.0_f64, |most, x| most.max(x.abs()));
    let pairs = got.iter().zip(expected);
    let errors = pairs.map(|(got, expected)| match got == expected {
        // Infinities too.
        true => 0.0,
        false => (got - expected).abs() / largest,
    });
    // An error that is NaN is the worst of all.
    errors.enumerate().max_by(|a, b| a.1.total_cmp(&b.1))
}

pub(crate) fn assert_same(a: &[Vec<f64>], b: &[Vec<f64>], what: &str) {
    let bits = |all: &[Vec<f64>]| -> Vec<Vec<u64>> {
        let tensors = all.iter();
        tensors
            .map(|own| own.iter().map(|x| x.to_bits()).collect())
            .collect()
    };
    for (number, (a, b)) in bits(a).iter().zip(&bits(b)).enumerate() {
        assert_eq!(a, b, "{what}, output {number}");
    }
}
