//! Operators on the rows of relations, against the operator on one row after another.

use flashcliff::messages::{self, End, MessageForm, MessageTensor, Messages, Strided};
use flashcliff::segments::Lists;
use flashcliff::{
    Algebra, Dim, Dims, Element, Error, Operator, ProductKind, Tensor, TensorSpec, ops,
};

use crate::largest::Owned;
use crate::random::Random;

const ROWS: End = End::Rows;
const FIRST: End = End::Targets(0);
const SECOND: End = End::Targets(1);

/// The elements after each row of an input, which no result may depend on.
const GAP: usize = 3;

/// A call with inputs that have gaps.
struct Case<T> {
    operator: Operator,
    form: MessageForm,
    relations: [Owned; 2],
    rows: usize,
    channels: usize,
    inputs: Vec<Vec<T>>,
}

fn components(spec: &TensorSpec) -> usize {
    match spec.dims[..] {
        [Dim::Fixed(count), ..] | [_, Dim::Fixed(count)] => count,
        _ => panic!("expected a fixed axis, got {spec}"),
    }
}

impl<T: Element> Case<T> {
    /// A call on integers, so that the order of sums does not matter.
    fn new(operator: &Operator, form: &MessageForm, rows: usize, channels: usize) -> Self {
        let random = &mut Random::new((rows * 100 + channels) as u64);
        let relations = [(rows / 3).max(1), rows + 2].map(|count| Owned::new(rows, count, random));
        let mut this = Self {
            operator: operator.clone(),
            form: form.clone(),
            relations,
            rows,
            channels,
            inputs: Vec::new(),
        };
        for (at, spec) in operator.inputs().iter().enumerate() {
            let len = match spec.is_parameter() {
                true => components(spec) * channels,
                false => components(spec) * this.component(at),
            };
            let values = random.integers(len).into_iter().map(T::from_f64);
            this.inputs.push(values.collect());
        }
        this
    }

    fn items(&self, end: End) -> usize {
        match end {
            End::Rows => self.rows,
            End::Targets(at) => self.relations[at].lists().starts.len() - 1,
        }
    }

    fn item(&self, at: usize) -> usize {
        let channels = if self.form.inputs[at].one {
            1
        } else {
            self.channels
        };
        channels + GAP
    }

    fn component(&self, at: usize) -> usize {
        self.items(self.form.inputs[at].end) * self.item(at) + GAP
    }

    fn width(&self, one: bool) -> usize {
        if one { 1 } else { self.channels }
    }

    fn run(&self) -> Vec<Vec<T>> {
        let lists: Vec<Lists<'_>> = self.relations.iter().map(Owned::lists).collect();
        let inputs = self.inputs.iter().enumerate().map(|(at, data)| Strided {
            data,
            component: self.component(at),
            item: self.item(at),
        });
        let inputs: Vec<Strided<'_, T>> = inputs.collect();
        let call = Messages {
            inputs: &inputs,
            relations: &lists,
            channels: self.channels,
        };
        let results = self.operator.outputs().iter().zip(&self.form.sums);
        let results = results.map(|(spec, &one)| {
            let len = components(spec) * self.items(self.form.to) * self.width(one);
            vec![T::from_f64(7.0); len]
        });
        let mut results: Vec<Vec<T>> = results.collect();
        let outputs = results.iter_mut().map(|own| &mut own[..]).collect();
        messages::run(&self.operator, &self.form, &call, outputs).expect("tensors that fit");
        results
    }

    /// The results of one row.
    fn of_row(&self, row: usize) -> Vec<Vec<T>> {
        let dims = Dims {
            batch: 1,
            in_channels: self.channels,
            out_channels: self.channels,
            scalar_channels: 0,
        };
        let own = self.operator.inputs().iter().enumerate().map(|(at, spec)| {
            if spec.is_parameter() {
                return self.inputs[at].clone();
            }
            let MessageTensor { end, one } = self.form.inputs[at];
            let first = self.item(at) * self.item_of(end, row);
            let lane = |k: usize, c: usize| {
                self.inputs[at][k * self.component(at) + first + if one { 0 } else { c }]
            };
            let components = 0..components(spec);
            let all = components.flat_map(|k| (0..self.channels).map(move |c| (k, c)));
            all.map(|(k, c)| lane(k, c)).collect()
        });
        let own: Vec<Vec<T>> = own.collect();
        let shapes = self.operator.inputs().iter().map(|spec| spec.shape(&dims));
        let tensors = own
            .iter()
            .zip(shapes)
            .map(|(data, shape)| Tensor::new(data, &shape));
        let tensors: Vec<Tensor<'_, T>> = tensors.map(|own| own.expect("fits")).collect();
        self.operator.results(&tensors).expect("tensors that fit")
    }

    fn item_of(&self, end: End, row: usize) -> usize {
        match end {
            End::Rows => row,
            End::Targets(at) => self.relations[at].lists().targets[row] as usize,
        }
    }

    fn by_loops(&self) -> Vec<Vec<T>> {
        let (items, outputs) = (self.items(self.form.to), self.operator.outputs());
        let widths: Vec<usize> = self.form.sums.iter().map(|&one| self.width(one)).collect();
        let zeros = outputs.iter().zip(&widths);
        let zeros = zeros.map(|(spec, width)| vec![T::default(); components(spec) * items * width]);
        let mut found: Vec<Vec<T>> = zeros.collect();
        for row in 0..self.rows {
            let item = self.item_of(self.form.to, row);
            for ((found, own), width) in found.iter_mut().zip(self.of_row(row)).zip(&widths) {
                for (k, own) in own.chunks_exact(self.channels).enumerate() {
                    for (c, &value) in own.iter().enumerate() {
                        found[(k * items + item) * width + c % width] += value;
                    }
                }
            }
        }
        found
    }
}

fn form(inputs: &[(End, bool)], to: End, sums: &[bool]) -> MessageForm {
    let inputs = inputs.iter().map(|&(end, one)| MessageTensor { end, one });
    MessageForm {
        inputs: inputs.collect(),
        to,
        sums: sums.to_vec(),
    }
}

/// A product, its gradient in full and in part, and an operator with a norm and a parameter.
fn cases() -> Vec<(Operator, MessageForm)> {
    let plane: Algebra = "cl200".parse().expect("an algebra");
    let product = ops::product(plane, ProductKind::Geometric, None, None).expect("an operator");
    let gradient = product.gradient().expect("a gradient");
    let part = gradient.selecting(&[false, true]).expect("a part");
    let normed = ops::sgp_norm(plane, &ops::ProductOptions::default()).expect("an operator");
    let weight = (ROWS, false);
    let mut found = Vec::new();
    for to in [ROWS, FIRST, SECOND] {
        let all = form(&[(SECOND, false), (ROWS, true)], to, &[false]);
        found.push((product.clone(), all));
        let all = form(
            &[(ROWS, false), (SECOND, true), (FIRST, false)],
            to,
            &[false, true],
        );
        found.push((gradient.clone(), all));
        let all = form(
            &[(SECOND, false), (FIRST, true), (FIRST, true)],
            to,
            &[true],
        );
        found.push((part.clone(), all));
        let all = form(&[(FIRST, false), (SECOND, false), weight], to, &[false]);
        found.push((normed.clone(), all));
    }
    found
}

fn check<T: Element>(rows: usize, channels: usize) {
    for (operator, form) in cases() {
        let case = Case::<T>::new(&operator, &form, rows, channels);
        let (found, wanted) = (case.run(), case.by_loops());
        let name = operator.name();
        assert!(
            found == wanted,
            "{name} of {rows} rows, {channels} channels, {form:?}"
        );
    }
}

#[test]
fn results_are_those_row_by_row() {
    // The last rows are several chunks and several tasks.
    for (rows, channels) in [(0, 3), (1, 1), (9, 3), (9, 8), (40, 19), (3000, 16)] {
        check::<f32>(rows, channels);
        check::<f64>(rows, channels);
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let pool = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.expect("threads can be started")
    };
    for (operator, form) in cases() {
        let mut case = Case::<f32>::new(&operator, &form, 5000, 6);
        let all = case.inputs.iter_mut().flatten();
        all.for_each(|value| *value = (*value * 1.3).sin());
        let wanted = pool(1).install(|| case.run());
        for threads in [2, 3] {
            assert!(pool(threads).install(|| case.run()) == wanted, "{form:?}");
        }
    }
}

#[test]
fn tensors_that_do_not_fit_are_refused() {
    let plane: Algebra = "cl200".parse().expect("an algebra");
    let product = ops::product(plane, ProductKind::Geometric, None, None).expect("an operator");
    let linear = ops::mv_linear(plane, &ops::LinearOptions::default()).expect("an operator");
    let (data, mut to) = ([1.0_f32; 4], [0.0; 4]);
    let lists = Lists {
        targets: &[0],
        starts: &[0, 1],
        order: &[0],
    };
    let input = Strided {
        data: &data,
        component: 1,
        item: 1,
    };
    let mut error = |operator: &Operator, inputs: usize, to_end, len: usize| {
        let call = Messages {
            inputs: &[input; 2][..inputs],
            relations: &[lists],
            channels: 1,
        };
        let form = form(&[(ROWS, false), (FIRST, false)], to_end, &[false]);
        messages::run(operator, &form, &call, vec![&mut to[..len]]).expect_err("it does not fit")
    };
    let counted = |error| matches!(error, Error::TensorCount { .. });
    assert!(counted(error(&product, 1, FIRST, 4)));
    assert!(counted(error(&product, 2, SECOND, 4)));
    let short = error(&product, 2, FIRST, 3);
    assert!(matches!(
        short,
        Error::LengthMismatch {
            expected: 4,
            got: 3,
            ..
        }
    ));
    let of_channels = error(&linear, 2, FIRST, 4).to_string();
    assert!(
        of_channels.contains("expected tensors [components, batch, in]"),
        "{of_channels}"
    );
}
