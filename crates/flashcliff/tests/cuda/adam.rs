//! Adam and Lion for many parameters at once, by their own interface: calls that are refused, the state, averages, and a captured step.
//!
//! The arithmetic is compared with that of the CPU by the tests of `flashcliff-candle`.

use std::sync::Arc;

use flashcliff::cuda::cudarc::driver::{CudaSlice, CudaStream};
use flashcliff::cuda::items::Target;
use flashcliff::cuda::{
    Adam, AdamGroup, AdamList, AdamMember, AdamParameter, AdamRate, AdamRule, AdamSettings, Graph,
    ScheduleShape, Scratch, Tensor, TensorMut,
};
use flashcliff::{Dtype, Error};

use crate::device::device;
use crate::memory::Memory;
use crate::random::Random;
use crate::trials::{Needs, Tests};

const COUNTS: [usize; 4] = [5, 1030, 1, 4099];

pub(crate) fn add(tests: &mut Tests) {
    tests.add(Needs::Gpu, "adam::replays", replays);
    tests.add(Needs::Gpu, "adam::recurrence", recurrence);
    tests.add(Needs::Gpu, "adam::refused_calls", refused);
    tests.add(Needs::Gpu, "adam::settings", settings);
    tests.add(Needs::Gpu, "adam::lion", lion);
    tests.add(Needs::Gpu, "adam::lists", lists);
    tests.add(Needs::Gpu, "adam::averages", averages);
}

/// Parameters with everything that belongs to them.
struct Program {
    adam: Adam,
    rule: AdamRule,
    stream: Arc<CudaStream>,
    state: Memory,
    /// Parameter, gradient, mean and square of each slot.
    tensors: Vec<[Memory; 4]>,
}

impl Program {
    fn new(settings: &AdamSettings) -> Self {
        let stream = device().new_stream().expect("a stream");
        let adam = Adam::new(device(), settings, &COUNTS).expect("settings");
        let mut random = Random::new(7);
        let tensors = COUNTS.map(|count| {
            [true, true, false, false].map(|random_numbers| {
                let mut memory = Memory::new(device(), 4 * count);
                let values = match random_numbers {
                    true => random.reals(count),
                    false => vec![0.0; count],
                };
                memory.write(&stream, 0, &bytes(&values));
                memory
            })
        });
        let mut state = Memory::new(device(), adam.state_bytes());
        state.write(&stream, 0, &adam.state(&[0; 4]).expect("a state"));
        Self {
            adam,
            rule: settings.rule,
            stream,
            state,
            tensors: tensors.into(),
        }
    }

    fn values(&self, memory: &Memory) -> Vec<f32> {
        let mut bytes = vec![0; memory.bytes()];
        memory.read(&self.stream, 0, &mut bytes);
        floats(&bytes)
    }

    fn step(&self, slots: &[usize], loss: Option<&Memory>) -> Result<(), Error> {
        // SAFETY: the memory was made for the counts and lives as long as the program, which waits for its results.
        let read = |memory: &Memory, count: usize| unsafe {
            Tensor::from_raw(memory.address(), Dtype::F32, &[count], 0).expect("a shape")
        };
        // SAFETY: the same holds as above; each tensor is a separate allocation.
        let write = |memory: &Memory, count: usize| unsafe {
            TensorMut::from_raw(memory.address(), Dtype::F32, &[count], 0).expect("a shape")
        };
        let parameters = slots.iter().map(|&slot| {
            let ([parameter, gradient, mean, square], count) = (&self.tensors[slot], COUNTS[slot]);
            AdamParameter {
                slot,
                parameter: write(parameter, count),
                gradient: read(gradient, count),
                mean: write(mean, count),
                square: (self.rule == AdamRule::Adam).then(|| write(square, count)),
            }
        });
        let mut parameters: Vec<AdamParameter<'_>> = parameters.collect();
        // SAFETY: the same holds as above.
        let state = unsafe { Scratch::from_raw(self.state.address(), self.state.bytes(), 0) };
        let loss = loss.map(|loss| read(loss, 1));
        self.adam.step(&self.stream, &mut parameters, loss, state)
    }

    fn bits(&self) -> Vec<Vec<u8>> {
        let all = self.tensors.iter().flatten().chain([&self.state]);
        let read = |memory: &Memory| {
            let mut bytes = vec![0; memory.bytes()];
            memory.read(&self.stream, 0, &mut bytes);
            bytes
        };
        all.map(read).collect()
    }

    fn state(&self) -> flashcliff::cuda::AdamState {
        let mut bytes = vec![0; self.state.bytes()];
        self.state.read(&self.stream, 0, &mut bytes);
        self.adam.read_state(&bytes).expect("a state")
    }
}

fn bytes(values: &[f64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|&value| (value as f32).to_ne_bytes())
        .collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let words = bytes.chunks_exact(4);
    words
        .map(|word| f32::from_ne_bytes([word[0], word[1], word[2], word[3]]))
        .collect()
}

/// A captured step goes on from step to step by itself.
fn replays() {
    let settings = AdamSettings {
        clip_norm: Some(3.0),
        weight_decay: 0.1,
        decoupled: true,
        warmup: 4,
        steps: 20,
        ..AdamSettings::default()
    };
    let (eager, captured) = (Program::new(&settings), Program::new(&settings));
    let slots = [0, 1, 2, 3];
    eager.step(&slots, None).expect("a step");
    captured.step(&slots, None).expect("a step");
    let before = captured.bits();
    let graph = Graph::capture(&captured.stream, || captured.step(&slots, None)).expect("a graph");
    assert!(captured.bits() == before, "captured work does not run");
    assert_eq!((graph.nodes().kernels, graph.nodes().all), (3, 3));
    for _ in 0..30 {
        graph.launch().expect("a replay");
        eager.step(&slots, None).expect("a step");
        assert!(captured.bits() == eager.bits());
    }
    assert_eq!(captured.state().steps, [31; 4]);
    assert_eq!(captured.state().calls, 31);
}

/// Some steps of some slots against the recurrence in `f64`.
pub(crate) fn recurrence() {
    let program = Program::new(&AdamSettings::default());
    let values = |memory: &Memory| program.values(memory);
    let starts: Vec<Vec<f32>> = program
        .tensors
        .iter()
        .map(|slot| values(&slot[0]))
        .collect();
    for _ in 0..5 {
        program.step(&[1, 3], None).expect("a step");
    }
    for (slot, start) in starts.iter().enumerate() {
        let (got, gradient) = (
            values(&program.tensors[slot][0]),
            values(&program.tensors[slot][1]),
        );
        for ((&got, &start), &g) in got.iter().zip(start).zip(&gradient) {
            let g = f64::from(g);
            // With a constant gradient the corrected moments are the gradient and its square.
            let moved = if slot % 2 == 1 {
                5e-3 * g / (g.abs() + 1e-8)
            } else {
                0.0
            };
            let expected = f64::from(start) - moved;
            // Five roundings of the parameter, and the roundings of steps of a thousandth.
            let bound = 5.0 * f64::from(f32::EPSILON) * (f64::from(start).abs() + 1e-2);
            assert!(
                (f64::from(got) - expected).abs() <= bound,
                "{slot}: {got}, {expected}"
            );
        }
    }
    let squares: f64 = [1, 3]
        .iter()
        .flat_map(|&slot| values(&program.tensors[slot][1]))
        .map(|g| f64::from(g) * f64::from(g))
        .sum();
    let state = program.state();
    assert!((state.norm / squares.sqrt() - 1.0).abs() < 1e-13);
    assert_eq!(state.steps, [0, 5, 0, 5]);
    assert_eq!((state.rate, state.clip, state.refused), (1e-3, 1.0, 0));
}

const SETTINGS: AdamSettings = AdamSettings {
    rule: AdamRule::Adam,
    learning_rate: 1e-2,
    beta1: 0.75,
    beta2: 0.9,
    eps: 1e-8,
    weight_decay: 0.1,
    decoupled: true,
    clip_norm: None,
    adaptive_clipping: false,
    loss_scaling: None,
    halt: false,
    shape: ScheduleShape::Constant,
    warmup: 0,
    steps: 0,
    floor: 0.0,
};

/// Some steps of Lion against its formulas on the host, which rounds as the GPU does. Gradients change, so that some directions come from
/// the mean and not from the gradient.
pub(crate) fn lion() {
    let settings = AdamSettings {
        rule: AdamRule::Lion,
        ..SETTINGS
    };
    let mut program = Program::new(&settings);
    let part = |beta: f64| (beta as f32, (1.0 - beta) as f32);
    let ((beta1, gain1), (beta2, gain2)) = (part(settings.beta1), part(settings.beta2));
    let rate = settings.learning_rate as f32;
    let keep = (1.0 - settings.learning_rate * settings.weight_decay) as f32;
    let slot = 1;
    let mut parameter = program.values(&program.tensors[slot][0]);
    let mut mean = vec![0.0_f32; COUNTS[slot]];
    let mut against = 0;
    for seed in 0..6 {
        let gradient = Random::new(seed).reals(COUNTS[slot]);
        program.tensors[slot][1].write(&program.stream, 0, &bytes(&gradient));
        program.step(&[slot, 3], None).expect("a step");
        for ((p, m), &g) in parameter.iter_mut().zip(&mut mean).zip(&gradient) {
            let g = g as f32;
            let direction = beta1 * *m + gain1 * g;
            against += usize::from(direction * g < 0.0);
            *p = keep * *p - rate * direction.signum();
            *m = beta2 * *m + gain2 * g;
        }
    }
    assert!(against > COUNTS[slot] / 10, "{against}");
    assert!(program.values(&program.tensors[slot][0]) == parameter);
    assert!(program.values(&program.tensors[slot][2]) == mean);
    assert_eq!(
        program.values(&program.tensors[slot][3]),
        vec![0.0; COUNTS[slot]]
    );
    assert_eq!(program.state().steps, [0, 6, 0, 6]);
}

/// Memory of zeros.
fn zeros(stream: &CudaStream, bytes: usize) -> Memory {
    let mut memory = Memory::new(device(), bytes);
    memory.write(stream, 0, &vec![0; bytes]);
    memory
}

/// A list of the parameters of a program.
struct Listed<'a> {
    own: &'a Program,
    list: AdamList,
    members: Vec<AdamMember>,
    /// Steps that the host counts, for Adam.
    steps: Memory,
    workspace: Memory,
}

impl<'a> Listed<'a> {
    /// With the group and the average of each slot.
    fn new(own: &'a Program, group: fn(usize) -> usize, average: impl Fn(usize) -> u64) -> Self {
        let steps = zeros(&own.stream, 4 * COUNTS.len());
        let for_adam = |address: u64| match own.rule {
            AdamRule::Adam => address,
            _ => 0,
        };
        let member = |(slot, tensors): (usize, &[Memory; 4])| AdamMember {
            parameter: tensors[0].address(),
            mean: tensors[2].address(),
            square: for_adam(tensors[3].address()),
            step: for_adam(steps.address() + 4 * slot as u64),
            average: average(slot),
            count: COUNTS[slot],
            group: group(slot),
            dtype: Dtype::F32,
        };
        let members: Vec<_> = own.tensors.iter().enumerate().map(member).collect();
        let list = AdamList::new(own.rule, &members).expect("types");
        Self {
            workspace: zeros(&own.stream, list.workspace_bytes()),
            own,
            list,
            members,
            steps,
        }
    }

    /// A step of the slots that have gradients.
    fn step(&self, slots: &[usize], groups: &[AdamGroup]) -> Result<(), Error> {
        let gradient = |slot| match slots.contains(&slot) {
            true => self.own.tensors[slot][1].address(),
            false => 0,
        };
        let gradients: Vec<_> = (0..COUNTS.len()).map(gradient).collect();
        let target = Target {
            device: device(),
            stream: self.own.stream.cu_stream(),
        };
        let workspace = self.workspace.address();
        // SAFETY: the memory was made for the counts, each tensor is a separate allocation, and all
        // live until results were read.
        unsafe { self.list.step(target, &gradients, groups, None, workspace) }
    }
}

/// The options of the settings in a group of a list.
fn group(settings: &AdamSettings, learning_rate: AdamRate, average_decay: f64) -> AdamGroup {
    AdamGroup {
        learning_rate,
        beta1: settings.beta1,
        beta2: settings.beta2,
        eps: settings.eps,
        weight_decay: settings.weight_decay,
        maximize: false,
        average_decay,
    }
}

/// A list with step counts of its host gives the bits of chunks, and of them only what has a gradient.
pub(crate) fn lists() {
    for rule in [AdamRule::Adam, AdamRule::Lion] {
        list_of(rule);
    }
}

fn list_of(rule: AdamRule) {
    let settings = AdamSettings { rule, ..SETTINGS };
    let (chunks, own) = (Program::new(&settings), Program::new(&settings));
    let mut rate = zeros(&own.stream, 8);
    rate.write(&own.stream, 0, &settings.learning_rate.to_ne_bytes());
    let listed = Listed::new(&own, |slot| slot % 2, |_| 0);
    let rates = [
        AdamRate::Value(settings.learning_rate),
        AdamRate::At(rate.address(), Dtype::F64),
    ];
    let groups = rates.map(|rate| group(&settings, rate, 0.0));
    for slots in [&[0, 1, 2, 3][..], &[1, 3], &[0], &[0, 1, 2, 3]] {
        chunks.step(slots, None).expect("a step");
        listed.step(slots, &groups).expect("a step");
    }
    let [ours, theirs] = [&own, &chunks].map(|program| {
        let tensors = program.bits();
        tensors[..4 * COUNTS.len()].to_vec()
    });
    assert!(ours == theirs);
    let mut counted = vec![0; listed.steps.bytes()];
    listed.steps.read(&own.stream, 0, &mut counted);
    let counts = match rule {
        AdamRule::Adam => [3.0, 3.0, 2.0, 3.0],
        // Steps of Lion are not counted.
        _ => [0.0; 4],
    };
    assert_eq!(floats(&counted), counts);
    assert!(matches!(
        listed.step(&[0], &groups[..1]),
        Err(Error::InvalidOption {
            option: "groups",
            ..
        })
    ));
    let halves = AdamMember {
        dtype: Dtype::F16,
        ..listed.members[0]
    };
    assert!(matches!(
        AdamList::new(rule, &[halves]),
        Err(Error::DtypeMismatch { .. })
    ));
}

/// Averages follow parameters, with a gradient and without, and change no parameter. One parameter has none.
pub(crate) fn averages() {
    for rule in [AdamRule::Adam, AdamRule::Lion] {
        averages_of(rule);
    }
}

fn averages_of(rule: AdamRule) {
    let settings = AdamSettings { rule, ..SETTINGS };
    let (chunks, own) = (Program::new(&settings), Program::new(&settings));
    let moving = COUNTS.map(|count| zeros(&own.stream, 4 * count));
    let average = |slot: usize| match slot {
        2 => 0,
        _ => moving[slot].address(),
    };
    let listed = Listed::new(&own, |_| 0, average);
    let group = group(&settings, AdamRate::Value(settings.learning_rate), 0.9);
    let gain = (1.0_f64 - 0.9) as f32;
    let mut expected = COUNTS.map(|count| vec![0.0_f32; count]);
    for slots in [&[0, 1, 2, 3][..], &[1, 2], &[3], &[], &[0, 1, 2, 3]] {
        listed.step(slots, &[group]).expect("a step");
        chunks.step(slots, None).expect("a step");
        for slot in [0, 1, 3] {
            let parameter = own.values(&own.tensors[slot][0]);
            for (average, p) in expected[slot].iter_mut().zip(parameter) {
                *average += gain * (p - *average);
            }
            assert!(
                own.values(&moving[slot]) == expected[slot],
                "{rule:?} {slot}"
            );
        }
    }
    assert!(own.bits()[..4 * COUNTS.len()] == chunks.bits()[..4 * COUNTS.len()]);
}

fn refused() {
    let program = Program::new(&AdamSettings::default());
    let before = program.bits();
    assert!(matches!(
        program.step(&[1, 0], None),
        Err(Error::InvalidOption { option: "slot", .. })
    ));
    assert!(matches!(
        program.step(&[2, 2], None),
        Err(Error::InvalidOption { option: "slot", .. })
    ));
    let stream = &program.stream;
    let memory = |len: usize| stream.alloc_zeros::<f32>(len).expect("memory");
    let step = |counts: [usize; 4], slot: usize, state_bytes: usize| {
        let [mut p, g, mut m, mut v]: [CudaSlice<f32>; 4] = counts.map(memory);
        let mut state = stream.alloc_zeros::<u8>(state_bytes).expect("memory");
        let parameter = AdamParameter {
            slot,
            parameter: TensorMut::new(&mut p, &[counts[0]])?,
            gradient: Tensor::new(&g, &[counts[1]])?,
            mean: TensorMut::new(&mut m, &[counts[2]])?,
            square: Some(TensorMut::new(&mut v, &[counts[3]])?),
        };
        let done = program
            .adam
            .step(stream, &mut [parameter], None, Scratch::new(&mut state));
        stream.synchronize().expect("no kernel failed");
        done
    };
    let enough = program.adam.state_bytes();
    assert!(step([5; 4], 0, enough).is_ok());
    assert!(matches!(
        step([5; 4], 4, enough),
        Err(Error::InvalidOption { option: "slot", .. })
    ));
    assert!(matches!(
        step([5; 4], 0, enough - 1),
        Err(Error::WorkspaceTooSmall { .. })
    ));
    for wrong in 0..4 {
        let mut counts = [5; 4];
        counts[wrong] = 6;
        let error = step(counts, 0, enough).expect_err("a wrong length");
        assert!(matches!(error, Error::ShapeMismatch { .. }), "{error}");
    }
    // Every pair of tensors that overlap, but for reads.
    for (first, second) in [(0, 1), (0, 2), (2, 3), (1, 3)] {
        let shared = Memory::new(device(), 64);
        let own = [(); 4].map(|()| Memory::new(device(), 64));
        let at = |tensor: usize| match tensor {
            // One element of five is shared.
            _ if tensor == first => shared.address(),
            _ if tensor == second => shared.address() + 16,
            _ => own[tensor].address(),
        };
        // SAFETY: all memory has room for five numbers, and the call launches nothing.
        let write = |tensor| unsafe { TensorMut::from_raw(at(tensor), Dtype::F32, &[5], 0) };
        // SAFETY: the same holds as above.
        let gradient = unsafe { Tensor::from_raw(at(1), Dtype::F32, &[5], 0) };
        let parameter = AdamParameter {
            slot: 0,
            parameter: write(0).expect("a shape"),
            gradient: gradient.expect("a shape"),
            mean: write(2).expect("a shape"),
            square: Some(write(3).expect("a shape")),
        };
        // SAFETY: the same holds as above.
        let state = unsafe { Scratch::from_raw(program.state.address(), program.state.bytes(), 0) };
        let done = program.adam.step(stream, &mut [parameter], None, state);
        assert!(
            matches!(done, Err(Error::Aliased { .. })),
            "{first} and {second}: {done:?}"
        );
    }
    // Lion has no mean of squares, and Adam needs one.
    for (rule, own) in [
        (AdamRule::Lion, AdamRule::Adam),
        (AdamRule::Adam, AdamRule::Lion),
    ] {
        let mut other = Program::new(&AdamSettings { rule, ..SETTINGS });
        other.rule = own;
        assert!(matches!(
            other.step(&[0], None),
            Err(Error::InvalidOption {
                option: "square",
                ..
            })
        ));
    }
    assert!(program.bits() == before);
    assert!(program.adam.state(&[0; 3]).is_err());
    assert!(program.adam.read_state(&[0; 8]).is_err());
}

fn settings() {
    type Change = fn(&mut AdamSettings);
    let cases: [(&str, Change); 8] = [
        ("learning_rate", |own| own.learning_rate = f64::NAN),
        ("eps", |own| own.eps = -1.0),
        ("weight_decay", |own| own.weight_decay = f64::INFINITY),
        ("beta1", |own| own.beta1 = 1.0),
        ("beta2", |own| own.beta2 = -0.5),
        ("clip_norm", |own| own.clip_norm = Some(0.0)),
        ("floor", |own| own.floor = 2.0),
        ("warmup", |own| own.warmup = u64::MAX),
    ];
    for (name, change) in cases {
        let mut settings = AdamSettings::default();
        change(&mut settings);
        match Adam::new(device(), &settings, &[1]) {
            Err(Error::InvalidOption { option, .. }) => assert_eq!(option, name),
            other => panic!("{name}: {other:?}"),
        }
    }
}
