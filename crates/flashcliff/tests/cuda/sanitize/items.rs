//! The kernels of items: norms, gates, features of attention, sums of columns, and packed weights.

use flashcliff::cuda::items::{
    Activation, Columns, Distances, Features, ItemEps, ItemGains, ItemPart, ItemSizes, ItemTensor,
    Items, Pack, Split,
};
use flashcliff::{Algebra, Dtype, Signature};

use super::numbers::{Bench, Numbers, assert_near};
use super::reads_back;

const HEADS: usize = 2;

/// Items of one size and type.
struct Kit {
    bench: Bench,
    items: Items,
    blades: usize,
    sizes: ItemSizes,
    /// The channels of an item in memory, of all heads.
    channels: usize,
    scalars: usize,
}

/// Multivectors and scalars.
struct Tensors([Numbers; 2]);

pub(super) fn run() {
    let algebras = [[2, 0, 0], [3, 0, 0], [3, 0, 1], [5, 0, 0]];
    for (at, [p, q, r]) in algebras.into_iter().enumerate() {
        let algebra = Algebra::new(Signature::of(p, q, r)).expect("shipped");
        for (channels, scalars) in [(4, 6), (3, 5)] {
            for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F64] {
                let rows = 37 + at;
                let sizes = ItemSizes {
                    rows,
                    channels,
                    scalars,
                    dtype,
                };
                let mut kit = Kit::new(algebra, sizes);
                kit.norms();
                kit.gates();
                kit.heads();
                kit.merged();
            }
        }
    }
    for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F64] {
        column_sums(dtype);
        packed(dtype);
    }
}

impl Kit {
    fn new(algebra: Algebra, sizes: ItemSizes) -> Self {
        Self {
            bench: Bench::new(31),
            items: Items::new(algebra).expect("2 to 5 dimensions"),
            blades: algebra.blade_count(),
            channels: sizes.channels * HEADS,
            scalars: sizes.scalars * HEADS,
            sizes,
        }
    }

    /// The sizes of whole items, without heads.
    fn whole(&self) -> ItemSizes {
        ItemSizes {
            channels: self.channels,
            scalars: self.scalars,
            ..self.sizes
        }
    }

    fn counts(&self) -> [usize; 2] {
        let rows = self.sizes.rows;
        [self.blades * rows * self.channels, rows * self.scalars]
    }

    fn given(&mut self) -> Tensors {
        let dtype = self.sizes.dtype;
        Tensors(self.counts().map(|count| self.bench.reals(dtype, count)))
    }

    fn result(&self) -> Tensors {
        let dtype = self.sizes.dtype;
        Tensors(self.counts().map(|count| self.bench.result(dtype, count)))
    }

    fn at(&self, Tensors([multivectors, scalars]): &Tensors) -> ItemTensor {
        ItemTensor {
            multivectors: multivectors.address(),
            blade_stride: self.sizes.rows * self.channels,
            row_stride: self.channels,
            scalars: scalars.address(),
            scalar_stride: self.scalars,
        }
    }

    fn finite(&self, tensors: &[&Tensors], what: &str) {
        self.bench.stream.synchronize().expect("no kernel failed");
        if reads_back() {
            let all = tensors.iter().flat_map(|tensors| &tensors.0);
            all.for_each(|numbers| drop(self.bench.read(numbers, what)));
        }
    }

    fn norms(&mut self) {
        let (sizes, dtype) = (self.whole(), self.sizes.dtype);
        let eps = ItemEps {
            multivectors: 1e-2,
            scalars: 1e-5,
        };
        let [x, added, gradient, through] = [(); 4].map(|()| self.given());
        let grades = self.blades.ilog2() as usize + 1;
        let numbers = self.channels * grades + self.scalars;
        let gains =
            [self.channels * grades, self.scalars].map(|count| self.bench.reals(dtype, count));
        let arithmetic = dtype.arithmetic();
        let partials = self.items.norm_partials(sizes) * numbers;
        let partials = self.bench.result(arithmetic, partials);
        let gains = ItemGains {
            multivectors: gains[0].address(),
            scalars: gains[1].address(),
            partials: partials.address(),
        };
        let [sum, normed, plain, slope, own] = [(); 5].map(|()| self.result());
        let target = self.bench.target();
        let at = |tensors| self.at(tensors);
        // SAFETY: each tensor is an allocation that has what its strides and the sizes reach, and lives until results were read.
        unsafe {
            let residual = Some([at(&added), at(&sum)]);
            let items = &self.items;
            let done = items.norm(target, sizes, eps, gains, at(&x), residual, at(&normed));
            done.expect("a call");
            let none = ItemGains::default();
            let done = items.norm(target, sizes, eps, none, at(&x), None, at(&plain));
            done.expect("a call");
            let g = at(&gradient);
            let more = Some(at(&through));
            let done =
                items.norm_gradient(target, sizes, eps, gains, at(&sum), g, more, at(&slope));
            done.expect("a call");
            let done = items.norm_gradient(target, sizes, eps, none, at(&x), g, None, at(&own));
            done.expect("a call");
        }
        self.finite(&[&sum, &normed, &plain, &slope, &own], "norm");
        if reads_back() {
            self.bench.read(&partials, "gradients of gains");
            let pairs = x.0[0].given.iter().zip(&added.0[0].given);
            let expected: Vec<f64> = pairs.map(|(a, b)| a + b).collect();
            let bound = if dtype == Dtype::Bf16 { 1e-2 } else { 1e-6 };
            assert_near(&self.bench.read(&sum.0[0], "sum"), &expected, bound, "sum");
        }
    }

    fn gates(&mut self) {
        let sizes = self.whole();
        let (x, gradient) = (self.given(), self.given());
        for (_, activation) in Activation::NAMES {
            let both = [activation, Activation::Silu];
            let (gated, slope) = (self.result(), self.result());
            let target = self.bench.target();
            // SAFETY: the same holds as for norms.
            unsafe {
                let items = &self.items;
                let done = items.gate(target, sizes, both, self.at(&x), self.at(&gated));
                done.expect("a call");
                let (x, g, to) = (self.at(&x), self.at(&gradient), self.at(&slope));
                let done = items.gate_gradient(target, sizes, both, x, g, to);
                done.expect("a call");
            }
            self.finite(&[&gated, &slope], "gate");
        }
    }

    /// Features of queries and keys with distances, where the algebra has points, and of values; norms of heads, where it has none.
    fn heads(&mut self) {
        let blades = self.blades;
        let dim = blades.ilog2() as usize;
        let has_points = dim == 4;
        let split = Split {
            features: match self.sizes.dtype {
                Dtype::F32 => Dtype::Bf16,
                dtype => dtype,
            },
            norm: (!has_points).then_some(ItemEps {
                multivectors: 1e-2,
                scalars: 1e-5,
            }),
            points: (blades - 1 - dim, dim - 1),
            distance_eps: 1e-3,
        };
        let kinds = match has_points {
            true => [Some(Distances::Query), Some(Distances::Key), None],
            false => [None; 3],
        };
        let taken = [0b1011_u32, 0b1011, u32::MAX >> (32 - blades)];
        let items = kinds.map(|_| self.given());
        let weights = self.bench.reals(self.sizes.dtype, self.channels);
        let (sizes, rows) = (self.sizes, self.sizes.rows);
        let widths = [0, 1, 2].map(|at| {
            let more = if kinds[at].is_some() { dim + 1 } else { 0 };
            let own = sizes.channels * (taken[at].count_ones() as usize + more) + sizes.scalars;
            own.next_multiple_of(8)
        });
        let features = widths.map(|width| self.bench.result(split.features, rows * HEADS * width));
        let given = widths.map(|width| self.bench.reals(split.features, rows * HEADS * width));
        let to = kinds.map(|_| self.result());
        let of_weights = self.bench.result(sizes.dtype, rows * self.channels);
        // Some sizes have weights, others their logarithms.
        let logarithms = sizes.channels % 2 == 1;
        let parts = |features: &[Numbers; 3]| {
            [0, 1, 2].map(|at| ItemPart {
                items: self.at(&items[at]),
                features: features[at].address(),
                width: widths[at],
                weights: if at == 0 && has_points {
                    weights.address()
                } else {
                    0
                },
                of_weights: if at == 0 && has_points {
                    of_weights.address()
                } else {
                    0
                },
                logarithms,
                heads: HEADS,
                taken: taken[at],
                negative: 0b10,
                distances: kinds[at],
            })
        };
        let target = self.bench.target();
        let slopes = [0, 1, 2].map(|at| self.at(&to[at]));
        // SAFETY: the same holds as for norms.
        unsafe {
            let done = self.items.heads(target, sizes, split, &parts(&features));
            done.expect("a call");
            let done = self
                .items
                .heads_gradient(target, sizes, split, &parts(&given), &slopes);
            done.expect("a call");
        }
        self.finite(&[&to[0], &to[1], &to[2]], "gradients of features");
        if reads_back() {
            for own in &features {
                self.bench.read(own, "features");
            }
            if has_points {
                self.bench.read(&of_weights, "gradients of weights");
            }
        }
    }

    /// Features that become items, and features again.
    fn merged(&mut self) {
        let (sizes, rows) = (self.sizes, self.sizes.rows);
        let width = sizes.channels * self.blades + sizes.scalars;
        let given = self.bench.reals(sizes.dtype, rows * HEADS * width);
        let back = self.bench.result(sizes.dtype, rows * HEADS * width);
        let merged = self.result();
        let features = |numbers: &Numbers| Features {
            features: numbers.address(),
            dtype: sizes.dtype,
            inner: rows,
            heads: HEADS,
            strides: [HEADS * rows * width, rows * width, width],
        };
        let target = self.bench.target();
        let to = self.at(&merged);
        // SAFETY: the same holds as for norms.
        unsafe {
            let done = self.items.merge(target, sizes, features(&given), to, false);
            done.expect("a call");
            let done = self.items.merge(target, sizes, features(&back), to, true);
            done.expect("a call");
        }
        self.finite(&[&merged], "items of features");
        if reads_back() {
            let back = self.bench.read(&back, "features of items");
            assert_near(&back, &given.given, 0.0, "features of items");
        }
    }
}

fn column_sums(dtype: Dtype) {
    let mut bench = Bench::new(37);
    let (rows, width, row_stride) = (301, 40, 48);
    let runs = [(0, 7), (12, 13), (20, 40)];
    let matrix = bench.reals(dtype, rows * row_stride);
    let columns = Columns {
        elements: matrix.address(),
        rows,
        width,
        row_stride,
        dtype,
        runs: &runs,
    };
    let taken: usize = runs.iter().map(|(start, stop)| stop - start).sum();
    let arithmetic = dtype.arithmetic();
    let partials = bench.result(arithmetic, Items::sum_partials(columns) * taken);
    let sums = bench.result(dtype, width);
    // SAFETY: each tensor is an allocation of just its size, and lives until results were read.
    let done =
        unsafe { Items::column_sums(bench.target(), columns, partials.address(), sums.address()) };
    done.expect("a call");
    bench.stream.synchronize().expect("no kernel failed");
    if reads_back() {
        let of = |column: usize| -> f64 {
            let is_taken = runs
                .iter()
                .any(|(start, stop)| (*start..*stop).contains(&column));
            let own = (0..rows).map(|row| matrix.given[row * row_stride + column]);
            if is_taken { own.sum() } else { 0.0 }
        };
        let expected: Vec<f64> = (0..width).map(of).collect();
        let bound = if dtype == Dtype::Bf16 { 1e-2 } else { 1e-4 };
        assert_near(&bench.read(&sums, "sums"), &expected, bound, "sums");
    }
}

fn packed(dtype: Dtype) {
    let mut bench = Bench::new(41);
    let (numbers, count, uses) = (53, 301, 3);
    let from = bench.reals(dtype, numbers);
    // A number whose factor is 0 is not read, so its place may be none.
    let places: Vec<i32> = (0..uses * count)
        .map(|at| {
            if at % 5 == 0 {
                -1
            } else {
                (at * 7 % numbers) as i32
            }
        })
        .collect();
    let factors: Vec<f64> = (0..uses * count)
        .map(|at| {
            if at % 5 == 0 {
                0.0
            } else {
                (at % 4) as f64 - 1.5
            }
        })
        .collect();
    let factors = bench.given(dtype, factors);
    let of_places = bench.places(&places);
    let to = bench.result(dtype, count);
    let pack = Pack {
        from: from.address(),
        places: of_places.address(),
        factors: factors.address(),
        to: to.address(),
        count,
        uses,
        dtype,
    };
    // The same numbers in two tensors, of which a place says one.
    let first = 20;
    let halves = [&from.given[..first], &from.given[first..]];
    let halves = halves.map(|half| bench.given(dtype, half.to_vec()));
    let split = |place: &i32| match *place - first as i32 {
        behind if behind >= 0 => (1 << Items::PLACE_BITS) | behind,
        _ => *place,
    };
    let of_halves = bench.places(&places.iter().map(split).collect::<Vec<_>>());
    let again = bench.result(dtype, count);
    let apart = Pack {
        places: of_halves.address(),
        to: again.address(),
        ..pack
    };
    // SAFETY: each tensor is an allocation of just its size, and lives until results were read.
    unsafe {
        Items::pack(bench.target(), pack).expect("a call");
        let tensors = halves.each_ref().map(Numbers::address);
        Items::pack_tensors(bench.target(), apart, &tensors).expect("a call");
    }
    bench.stream.synchronize().expect("no kernel failed");
    if reads_back() {
        let term = |at: usize| match usize::try_from(places[at]) {
            Ok(place) => factors.given[at] * from.given[place],
            Err(_) => 0.0,
        };
        let sum = |own: usize| (0..uses).map(|u| term(u * count + own)).sum();
        let expected: Vec<f64> = (0..count).map(sum).collect();
        let bound = if dtype == Dtype::Bf16 { 1e-2 } else { 1e-6 };
        let packed = bench.read(&to, "packed");
        assert_near(&packed, &expected, bound, "packed");
        assert_eq!(bench.read(&again, "packed"), packed);
    }
}
