//! The kernels of items: features of attention, merged heads, and sums.

use flashcliff::cuda::items::{
    Distances, Features, HeadNorm, ItemEps, ItemPart, ItemSizes, ItemTensor, Items, Split,
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
                kit.heads();
                kit.merged();
                kit.nothing();
            }
        }
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

    /// Features of queries and keys with distances, where the algebra has points, and of values; norms of heads of
    /// both kinds, where it has none.
    fn heads(&mut self) {
        let blades = self.blades;
        let dim = blades.ilog2() as usize;
        let has_points = dim == 4;
        let split = Split {
            features: match self.sizes.dtype {
                Dtype::F32 => Dtype::Bf16,
                dtype => dtype,
            },
            norm: match dim {
                4 => None,
                2 => Some(HeadNorm::Joint(1e-2)),
                _ => Some(HeadNorm::Grades(ItemEps {
                    multivectors: 1e-2,
                    scalars: 1e-5,
                })),
            },
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

    /// Without rows there is nothing to do, also where sequences have no items.
    fn nothing(&mut self) {
        let (target, sizes) = (
            self.bench.target(),
            ItemSizes {
                rows: 0,
                ..self.sizes
            },
        );
        let features = Features {
            features: 0,
            dtype: sizes.dtype,
            inner: 0,
            heads: HEADS,
            strides: [0; 3],
        };
        for back in [false, true] {
            let nowhere = ItemTensor::default();
            // SAFETY: without rows nothing is read or written.
            let done = unsafe { self.items.merge(target, sizes, features, nowhere, back) };
            done.expect("a call");
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
