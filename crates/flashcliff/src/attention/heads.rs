//! The features of queries, keys or values of heads, from multivectors and scalars where they lie, and the gradient.
//!
//! ```text
//! features of a head:  channels of each taken blade | channels of each distance feature | scalars | zeros
//! ```
//!
//! They are `[sequences, heads, items, width]`: the items of a head follow each other, as attention reads them.
//!
//! Rows are cut into chunks, which threads share. The cut depends on the sizes alone, and gradients of weights are
//! added over chunks in order.

mod compiled;
mod lengths;

use std::ops::Range;

use super::distance::DistancePoint;
use crate::operator::gemm::Matrix;
use crate::{Element, Error, Loop, Tier, sizes, threads};

pub(crate) use compiled::CompiledHeads;
use lengths::{at_least, check};

/// The rows of a chunk.
const ROWS: usize = 64;
/// The points that are computed at once.
const LANES: usize = 8;

/// The numbers of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadSizes {
    /// The items.
    pub rows: usize,
    /// The multivector channels of a head.
    pub channels: usize,
    /// The scalar channels of a head.
    pub scalars: usize,
    /// The heads, which are the fastest index of an item's channels.
    pub heads: usize,
    /// The elements of a head's features; zeros follow the features.
    pub width: usize,
    /// The items of a sequence, which divide `rows`. With 1 the features of an item's heads follow each other.
    pub items: usize,
}

/// Factors of heads, `[rows, heads]` each, which multiply them before their features are taken, as a norm does.
#[derive(Clone, Copy, Debug)]
pub struct HeadScales<'a, T> {
    /// The factors of multivectors.
    pub multivectors: &'a [T],
    /// Means that are subtracted from scalars before their factor; empty without scalars.
    pub means: &'a [T],
    /// The factors of scalars; empty without scalars.
    pub scalars: &'a [T],
}

/// The elements from one number of items to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadStrides {
    /// From a blade to the next.
    pub blade: usize,
    /// From the multivectors of an item to the multivectors of the next.
    pub row: usize,
    /// From the scalars of an item to the scalars of the next.
    pub scalars: usize,
}

/// Multivectors `[blades, rows, channels, heads]` and scalars `[rows, scalars, heads]`. The last two axes are contiguous.
#[derive(Clone, Copy, Debug)]
pub struct HeadItems<'a, T> {
    /// From the first multivector on.
    pub multivectors: &'a [T],
    /// From the first scalar on.
    pub scalars: &'a [T],
    /// Where the others are.
    pub strides: HeadStrides,
}

impl<T> HeadItems<'_, T> {
    /// The items from one on.
    #[must_use]
    pub fn from(self, item: usize) -> Self {
        let HeadStrides { row, scalars, .. } = self.strides;
        let from = |all: usize, stride: usize| sizes::product([item, stride]).min(all);
        Self {
            multivectors: &self.multivectors[from(self.multivectors.len(), row)..],
            scalars: &self.scalars[from(self.scalars.len(), scalars)..],
            strides: self.strides,
        }
    }
}

/// Multivectors and scalars to write, as [`HeadItems`]; the rows of a blade do not reach into the next.
#[derive(Debug)]
pub struct HeadItemsMut<'a, T> {
    /// From the first multivector on.
    pub multivectors: &'a mut [T],
    /// From the first scalar on.
    pub scalars: &'a mut [T],
    /// Where the others are.
    pub strides: HeadStrides,
}

/// The distances that features are of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadDistances {
    /// Whether the features belong to queries, which have weights.
    pub of_queries: bool,
    /// The blade of the first coordinate. The others follow it, and then the weight of a point.
    pub first: usize,
    /// The coordinates.
    pub coordinates: usize,
    /// Regularises points without weight.
    pub eps: f64,
}

/// The features of queries, keys or values.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadFeatures {
    /// The blades of a multivector.
    pub blades: usize,
    /// The blades that are features, ascending, and whether each is negated.
    pub taken: Vec<(usize, bool)>,
    /// Features of distances, if there are some.
    pub distances: Option<HeadDistances>,
}

impl HeadFeatures {
    /// Writes the features `[sequences, heads, items, width]`. Queries with distances have weights `[channels, heads]`.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] for a slice that does not hold its shape, a width that is less than the features, heads without
    /// multivectors, and rows that are no whole sequences; [`Error::InvalidOption`] for blades that are not ascending.
    #[inline]
    pub fn forward<T: Element>(
        &self,
        sizes: HeadSizes,
        x: HeadItems<'_, T>,
        weights: &[T],
        features: &mut [T],
    ) -> Result<(), Error> {
        T::heads_forward(self, sizes, x, weights, None, features)
    }

    /// Writes the features of scaled heads, without distances, which are between the items as they are.
    ///
    /// # Errors
    /// The errors of [`Self::forward`]; [`Error::InvalidOption`] for features of distances.
    #[inline]
    pub fn forward_scaled<T: Element>(
        &self,
        sizes: HeadSizes,
        x: HeadItems<'_, T>,
        scales: HeadScales<'_, T>,
        features: &mut [T],
    ) -> Result<(), Error> {
        T::heads_forward(self, sizes, x, &[], Some(scales), features)
    }

    fn forward_here<T: Element>(
        &self,
        sizes: HeadSizes,
        x: HeadItems<'_, T>,
        weights: &[T],
        scales: Option<HeadScales<'_, T>>,
        features: &mut [T],
    ) -> Result<(), Error> {
        self.check(
            sizes,
            x.strides,
            [x.multivectors.len(), x.scalars.len()],
            weights,
        )?;
        self.check_features(sizes, features.len())?;
        if let Some(scales) = &scales {
            check_scales(self, sizes, scales)?;
        }
        // Rows without elements may be any number.
        if features.is_empty() {
            return Ok(());
        }
        let heads = Heads::new(self, sizes, x, weights);
        let to = Matrix::rows(features.as_mut_ptr(), 1);
        threads::for_each(0..sizes.rows.div_ceil(ROWS), |chunk| {
            let (heads, to) = (&heads, &to);
            let rows = chunk * ROWS..sizes.rows.min((chunk + 1) * ROWS);
            Tier::best().run(Forward {
                heads,
                rows,
                scales,
                to,
            });
        });
        Ok(())
    }

    /// Writes the gradient of the items from that of the features, and unless its slice is empty that of the weights.
    ///
    /// # Errors
    /// The errors of [`Self::forward`], and items to write that reach into the next, or rows of a blade that do.
    #[inline]
    pub fn backward<T: Element>(
        &self,
        sizes: HeadSizes,
        x: HeadItems<'_, T>,
        weights: &[T],
        gradient: &[T],
        to: HeadItemsMut<'_, T>,
        of_weights: &mut [T],
    ) -> Result<(), Error> {
        T::heads_backward(self, sizes, x, weights, gradient, to, of_weights)
    }

    fn backward_here<T: Element>(
        &self,
        sizes: HeadSizes,
        x: HeadItems<'_, T>,
        weights: &[T],
        gradient: &[T],
        to: HeadItemsMut<'_, T>,
        of_weights: &mut [T],
    ) -> Result<(), Error> {
        self.check(
            sizes,
            x.strides,
            [x.multivectors.len(), x.scalars.len()],
            weights,
        )?;
        self.check(
            sizes,
            to.strides,
            [to.multivectors.len(), to.scalars.len()],
            weights,
        )?;
        self.check_features(sizes, gradient.len())?;
        if !of_weights.is_empty() {
            let shape = [sizes.channels, sizes.heads];
            check(&shape, sizes::product(shape), of_weights.len())?;
        }
        self.check_apart(sizes, to.strides)?;
        of_weights.fill(T::default());
        // Rows and blades without elements may be any number. Weights have no gradient there: points take multivectors.
        if sizes.rows == 0 || (self.blades == 0 && sizes.scalars == 0) {
            return Ok(());
        }
        let mut sums = vec![T::default(); sizes.rows.div_ceil(ROWS) * of_weights.len()];
        let strides = to.strides;
        let blades = parts_of_blades(to.multivectors, sizes.rows, strides, self.blades);
        let scalars = parts(to.scalars, sizes.rows, strides.scalars);
        let mut rest = &mut sums[..];
        let each = blades.into_iter().zip(scalars).enumerate();
        let work: Vec<_> = each
            .map(|(chunk, (blades, scalars))| {
                let (own, others) = std::mem::take(&mut rest).split_at_mut(of_weights.len());
                rest = others;
                (chunk, blades, scalars, own)
            })
            .collect();
        let heads = Heads::new(self, sizes, x, weights);
        threads::for_each(work.into_iter(), |(chunk, blades, scalars, of_weights)| {
            let first = chunk * ROWS;
            Tier::best().run(Backward {
                heads: &heads,
                first,
                g: gradient,
                rows: ROWS.min(sizes.rows - first),
                strides,
                blades,
                scalars,
                of_weights,
            });
        });
        for sums in sums.chunks_exact(of_weights.len().max(1)) {
            for (to, &sum) in of_weights.iter_mut().zip(sums) {
                *to += sum;
            }
        }
        Ok(())
    }

    /// The number of features of a head.
    fn count(&self, sizes: HeadSizes) -> usize {
        let distances = self.distances.as_ref();
        let distances = distances.map_or(0, |d| DistancePoint::<f64>::count(d.coordinates));
        let of_channel = sizes::sum([self.taken.len(), distances]);
        sizes::sum([sizes::product([of_channel, sizes.channels]), sizes.scalars])
    }

    fn check(
        &self,
        sizes: HeadSizes,
        strides: HeadStrides,
        [multivectors, scalars]: [usize; 2],
        weights: &[impl Element],
    ) -> Result<(), Error> {
        let HeadSizes {
            rows,
            channels,
            heads,
            ..
        } = sizes;
        let (of_item, of_item_s) = sizes.of_item();
        let needed = sizes::reach([(self.blades, strides.blade), (rows, strides.row)], of_item);
        let needed_s = sizes::reach([(rows, strides.scalars)], of_item_s);
        let shape = [self.blades, rows, channels, heads];
        at_least(&shape, needed, multivectors)?;
        at_least(&[rows, sizes.scalars, heads], needed_s, scalars)?;
        if self.distances.is_some_and(|distances| distances.of_queries) && !weights.is_empty() {
            check(&[channels, heads], of_item, weights.len())?;
        }
        at_least(&[channels, heads], 1, of_item)?;
        let mut pairs = self.taken.windows(2);
        if let Some([_, (blade, _)]) = pairs.find(|pair| pair[0].0 >= pair[1].0) {
            return Err(Error::InvalidOption {
                option: "taken",
                expected: "blades in ascending order",
                got: *blade as f64,
            });
        }
        let of_taken = self
            .taken
            .last()
            .map_or(0, |(blade, _)| sizes::sum([*blade, 1]));
        let of_points = self
            .distances
            .map_or(0, |d| sizes::sum([d.first, d.coordinates, 1]));
        at_least(&[self.blades], of_taken.max(of_points), self.blades)
    }

    /// Checks that items to write do not reach into each other: the scalars, the multivectors of a blade, and the blades.
    fn check_apart(&self, sizes: HeadSizes, strides: HeadStrides) -> Result<(), Error> {
        let (of_item, of_item_s) = sizes.of_item();
        let of_blade = sizes::reach([(sizes.rows, strides.row)], of_item);
        for (size, stride, needed) in [
            (sizes.rows, strides.row, of_item),
            (sizes.rows, strides.scalars, of_item_s),
            (self.blades, strides.blade, of_blade),
        ] {
            if size > 1 {
                at_least(&[size, stride], needed, stride)?;
            }
        }
        Ok(())
    }

    fn check_features(&self, sizes: HeadSizes, len: usize) -> Result<(), Error> {
        let shape = [sizes.rows, sizes.heads, sizes.width];
        check(&shape, sizes::product(shape), len)?;
        at_least(&[sizes.items], 1, sizes.items)?;
        let whole = sizes.rows / sizes.items * sizes.items;
        check(&[sizes.rows / sizes.items, sizes.items], whole, sizes.rows)?;
        at_least(&[sizes.width], self.count(sizes), sizes.width)
    }
}

/// Checks the factors of heads.
fn check_scales<T>(
    of: &HeadFeatures,
    sizes: HeadSizes,
    scales: &HeadScales<'_, T>,
) -> Result<(), Error> {
    if of.distances.is_some() {
        return Err(Error::InvalidOption {
            option: "distances",
            expected: "none with scaled heads",
            got: 1.0,
        });
    }
    let shape = [sizes.rows, sizes.heads];
    let needed = sizes::product(shape);
    check(&shape, needed, scales.multivectors.len())?;
    let of_scalars = if sizes.scalars > 0 { needed } else { 0 };
    check(&shape, of_scalars, scales.means.len())?;
    check(&shape, of_scalars, scales.scalars.len())
}

/// The arguments that all rows of a call share.
struct Heads<'a, T> {
    of: &'a HeadFeatures,
    sizes: HeadSizes,
    x: HeadItems<'a, T>,
    weights: &'a [T],
    /// The channels of an item's heads.
    count: usize,
    /// The place of each of these channels, and of each scalar, among the first features of an item's heads.
    places: Vec<usize>,
}

/// Writes the features of some rows, which no other loop writes.
struct Forward<'a, T> {
    heads: &'a Heads<'a, T>,
    rows: Range<usize>,
    scales: Option<HeadScales<'a, T>>,
    /// The features of all rows.
    to: &'a Matrix<T>,
}

/// Writes the gradients of some rows, and adds the gradients of weights.
struct Backward<'a, 'b, T> {
    heads: &'a Heads<'a, T>,
    first: usize,
    /// The gradient of the features of all rows.
    g: &'a [T],
    rows: usize,
    strides: HeadStrides,
    /// The rows of each blade.
    blades: Vec<&'b mut [T]>,
    scalars: &'b mut [T],
    of_weights: &'b mut [T],
}

impl<T: Element> Loop for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for row in self.rows {
            let to = self.to.from(self.heads.first_feature(row), 0).ptr;
            // SAFETY: lengths were checked, and no other loop writes the features of the row.
            unsafe {
                match self.heads.sizes.channels {
                    2 => self.heads.row::<2>(row, self.scales, to),
                    4 => self.heads.row::<4>(row, self.scales, to),
                    8 => self.heads.row::<8>(row, self.scales, to),
                    _ => self.heads.row::<0>(row, self.scales, to),
                }
            }
        }
    }
}

impl<T: Element> Loop for Backward<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run(mut self) {
        for at in 0..self.rows {
            let first = self.heads.first_feature(self.first + at);
            self.row(at, &self.g[first..]);
        }
    }
}

impl<'a, T: Element> Heads<'a, T> {
    fn new(of: &'a HeadFeatures, sizes: HeadSizes, x: HeadItems<'a, T>, weights: &'a [T]) -> Self {
        let of_head = sizes.items * sizes.width;
        let place = |at: usize| at % sizes.heads * of_head + at / sizes.heads;
        let count = sizes::product([sizes.channels, sizes.heads]);
        // Items have as many numbers; without items or blades there may be any number of channels.
        let of_blades = if of.blades > 0 { count } else { 0 };
        let most = if sizes.rows > 0 {
            of_blades.max(sizes.of_item().1)
        } else {
            0
        };
        Self {
            of,
            sizes,
            x,
            weights,
            count,
            places: (0..most).map(place).collect(),
        }
    }

    /// The multivectors of an item in a blade.
    #[inline(always)]
    fn blade(&self, row: usize, blade: usize) -> &'a [T] {
        let HeadStrides {
            blade: step,
            row: of_row,
            ..
        } = self.x.strides;
        &self.x.multivectors[blade * step + row * of_row..][..self.count]
    }

    /// The number of features before the features of distances, and before scalars.
    #[inline(always)]
    fn firsts(&self) -> [usize; 2] {
        let first = self.of.taken.len() * self.sizes.channels;
        [first, self.of.count(self.sizes) - self.sizes.scalars]
    }

    /// The first of each block of points, and whether it has as many as lanes; else it is one.
    #[inline(always)]
    fn blocks(&self) -> impl Iterator<Item = (usize, bool)> + use<T> {
        let count = self.count;
        let whole = count - count % LANES;
        let blocks = (0..whole).step_by(LANES).map(|at| (at, true));
        blocks.chain((whole..count).map(|at| (at, false)))
    }

    /// The first feature of an item.
    #[inline(always)]
    fn first_feature(&self, row: usize) -> usize {
        let HeadSizes {
            heads,
            width,
            items,
            ..
        } = self.sizes;
        (row / items * heads * items + row % items) * width
    }

    /// Writes the features of an item, the first of which has an address. A head has `CHANNELS`, or any number if this is 0.
    ///
    /// # Safety
    /// Lengths were checked, and nobody else uses the features of the item.
    #[inline(always)]
    unsafe fn row<const CHANNELS: usize>(
        &self,
        row: usize,
        scales: Option<HeadScales<'_, T>>,
        to: *mut T,
    ) {
        let HeadSizes {
            channels,
            scalars,
            heads,
            width,
            items,
            ..
        } = self.sizes;
        let one = T::from_f64(1.0);
        let of_heads = row * heads..(row + 1) * heads;
        let scale = scales.map(|own| &own.multivectors[of_heads.clone()]);
        let [of_distances, of_scalars] = self.firsts();
        for (at, &(taken, negative)) in self.of.taken.iter().enumerate() {
            let from = self.blade(row, taken);
            let sign = if negative { T::default() - one } else { one };
            for head in 0..heads {
                let factor = scale.map_or(sign, |own| sign * own[head]);
                // SAFETY: the caller promises it.
                unsafe {
                    let to = to.add(head * items * width + at * channels);
                    let from = from.as_ptr().add(head);
                    if CHANNELS > 0 {
                        for channel in 0..CHANNELS {
                            *to.add(channel) = *from.add(channel * heads) * factor;
                        }
                    } else {
                        for channel in 0..channels {
                            *to.add(channel) = *from.add(channel * heads) * factor;
                        }
                    }
                }
            }
        }
        if let Some(distances) = &self.of.distances {
            for (at, whole) in self.blocks() {
                let blade = |blade: usize| self.blade(row, blade);
                let put = |feature: usize, lane: usize, value: T| {
                    let place = self.places[at + lane] + of_distances + feature * channels;
                    // SAFETY: the caller promises it.
                    unsafe { *to.add(place) = value };
                };
                match whole {
                    true => distances.features::<T, LANES>(at, blade, self.weights, put),
                    false => distances.features::<T, 1>(at, blade, self.weights, put),
                }
            }
        }
        if scalars > 0 {
            let from = &self.x.scalars[row * self.x.strides.scalars..][..self.sizes.of_item().1];
            let scale =
                scales.map(|own| [own.means, own.scalars].map(|own| &own[of_heads.clone()]));
            for head in 0..heads {
                let (mean, factor) =
                    scale.map_or((T::default(), one), |[means, own]| (means[head], own[head]));
                let own = from[head..].iter().step_by(heads);
                for (channel, &s) in own.enumerate() {
                    let place = head * items * width + of_scalars + channel;
                    // SAFETY: the caller promises it.
                    unsafe { *to.add(place) = (s - mean) * factor };
                }
            }
        }
        for head in 0..heads {
            for place in of_scalars + scalars..width {
                // SAFETY: the caller promises it.
                unsafe { *to.add(head * items * width + place) = T::default() };
            }
        }
    }
}

impl<T: Element> Backward<'_, '_, T> {
    /// Writes the gradient of an item, and adds that of the weights.
    #[inline(always)]
    fn row(&mut self, at: usize, g: &[T]) {
        let own = self.heads;
        let HeadSizes {
            channels,
            scalars,
            heads,
            ..
        } = own.sizes;
        let [of_distances, of_scalars] = own.firsts();
        let (row, from_row) = (self.first + at, at * self.strides.row);
        let mut taken = own.of.taken.iter().enumerate().peekable();
        for (blade, to) in self.blades.iter_mut().enumerate() {
            let to = &mut to[from_row..][..channels * heads];
            let Some((at, &(_, negative))) = taken.next_if(|(_, (taken, _))| *taken == blade)
            else {
                to.fill(T::default());
                continue;
            };
            let g = &g[at * channels..];
            let to = to.iter_mut().zip(&own.places);
            match negative {
                true => to.for_each(|(to, &place)| *to = T::default() - g[place]),
                false => to.for_each(|(to, &place)| *to = g[place]),
            }
        }
        if let Some(distances) = &own.of.distances {
            for (at, whole) in own.blocks() {
                let blade = |blade: usize| own.blade(row, blade);
                let g = |feature: usize, lane: usize| {
                    g[own.places[at + lane] + of_distances + feature * channels]
                };
                let blades = &mut self.blades;
                let put = |axis: usize, lane: usize, value: T| {
                    blades[distances.first + axis][from_row + at + lane] += value;
                };
                let of_weights = &mut *self.of_weights;
                match whole {
                    true => {
                        distances.gradient::<T, LANES>(at, blade, own.weights, g, put, of_weights)
                    }
                    false => distances.gradient::<T, 1>(at, blade, own.weights, g, put, of_weights),
                }
            }
        }
        if scalars > 0 {
            let to = &mut self.scalars[at * self.strides.scalars..][..scalars * heads];
            let g = &g[of_scalars..];
            let to = to.iter_mut().zip(&own.places);
            to.for_each(|(to, &place)| *to = g[place]);
        }
    }
}

impl HeadSizes {
    /// The elements of an item's multivectors in one blade, and of its scalars.
    fn of_item(self) -> (usize, usize) {
        let of = |channels: usize| sizes::product([channels, self.heads]);
        (of(self.channels), of(self.scalars))
    }
}

impl HeadDistances {
    /// The points of a block, whose blades a function reads.
    #[inline(always)]
    fn points<'x, T: Element, const N: usize>(
        &self,
        at: usize,
        blade: impl Fn(usize) -> &'x [T],
    ) -> DistancePoint<T, N> {
        DistancePoint::new(self.coordinates, self.eps, |axis| {
            lanes(&blade(self.first + axis)[at..])
        })
    }

    /// The weights of a block of queries: 1 without weights.
    #[inline(always)]
    fn weights<T: Element, const N: usize>(&self, at: usize, weights: &[T]) -> Option<[T; N]> {
        self.of_queries.then(|| match weights {
            [] => [T::from_f64(1.0); N],
            _ => lanes(&weights[at..]),
        })
    }

    /// Calls a function with each feature, lane and value of a block.
    #[inline(always)]
    fn features<'x, T: Element, const N: usize>(
        &self,
        at: usize,
        blade: impl Fn(usize) -> &'x [T],
        weights: &[T],
        mut put: impl FnMut(usize, usize, T),
    ) {
        let points = self.points::<T, N>(at, blade);
        points.features(self.weights(at, weights), |feature, values| {
            for (lane, value) in values.into_iter().enumerate() {
                put(feature, lane, value);
            }
        });
    }

    /// Calls a function with each coordinate or weight, lane and gradient of a block, and adds the gradients of
    /// weights unless their slice is empty.
    #[inline(always)]
    fn gradient<'x, T: Element, const N: usize>(
        &self,
        at: usize,
        blade: impl Fn(usize) -> &'x [T],
        weights: &[T],
        g: impl Fn(usize, usize) -> T,
        mut put: impl FnMut(usize, usize, T),
        of_weights: &mut [T],
    ) {
        let points = self.points::<T, N>(at, blade);
        let g = |feature: usize| {
            let mut all = [T::default(); N];
            for (lane, to) in all.iter_mut().enumerate() {
                *to = g(feature, lane);
            }
            all
        };
        if !of_weights.is_empty() {
            let of_weights = &mut of_weights[at..][..N];
            points.features(Some([T::from_f64(1.0); N]), |feature, values| {
                let g: [T; N] = g(feature);
                for ((sum, value), g) in of_weights.iter_mut().zip(values).zip(g) {
                    *sum += value * g;
                }
            });
        }
        points.gradient(self.weights(at, weights), g, |axis, values| {
            for (lane, value) in values.into_iter().enumerate() {
                put(axis, lane, value);
            }
        });
    }
}

/// The first elements.
#[inline(always)]
fn lanes<T: Element, const N: usize>(from: &[T]) -> [T; N] {
    let mut lanes = [T::default(); N];
    lanes.copy_from_slice(&from[..N]);
    lanes
}

/// For each chunk of rows the parts of all blades.
fn parts_of_blades<T>(
    mut all: &mut [T],
    rows: usize,
    strides: HeadStrides,
    blades: usize,
) -> Vec<Vec<&mut [T]>> {
    let mut found: Vec<Vec<&mut [T]>> = (0..rows.div_ceil(ROWS)).map(|_| Vec::new()).collect();
    for blade in 0..blades {
        let len = match blade + 1 < blades {
            true => strides.blade.min(all.len()),
            false => all.len(),
        };
        let (own, others) = std::mem::take(&mut all).split_at_mut(len);
        all = others;
        let own = parts(own, rows, strides.row);
        found
            .iter_mut()
            .zip(own)
            .for_each(|(found, own)| found.push(own));
    }
    found
}

/// For each chunk of rows its part of what begins with the first row.
fn parts<T>(mut all: &mut [T], rows: usize, stride: usize) -> Vec<&mut [T]> {
    let mut found = Vec::new();
    let chunks = rows.div_ceil(ROWS);
    for chunk in 1..=chunks {
        // A single row has no next one, whatever the stride is.
        let len = match chunk < chunks {
            true => sizes::product([ROWS, stride]).min(all.len()),
            false => all.len(),
        };
        let (own, others) = std::mem::take(&mut all).split_at_mut(len);
        all = others;
        found.push(own);
    }
    found
}

#[cfg(test)]
mod tests;
