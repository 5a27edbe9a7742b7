//! Attention between the kernels of heads: features of the input, one of two ways to attend, and the gradients of both.
//!
//! `fused` is a kernel without scores, for what it serves; `scores` keeps them, and serves all else. Which one it is
//! depends on the step and its type alone, so that a plan knows the memory.

use flashcliff::Device;
use flashcliff::cuda::attention::{Attention as Kernel, WholeAttention};
use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::items::{
    Distances, Features, HeadNorm, ItemEps, ItemPart, ItemTensor, Items, Split,
};

use super::fused::Fused;
use super::scores::Scores;
use super::{Given, Ready, Site, Sizes, To, not_served};
use crate::Error;
use crate::cuda::room::Room;
use crate::tokens;
use crate::tokens::features::{EPS, Part};
use crate::tokens::{Channels, joint, norm};

/// The features of heads: what both ways to attend share.
#[derive(Debug)]
pub(super) struct Heads {
    pub(super) items: Items,
    pub(super) step: tokens::Attention,
    /// The widths of features in memory: of queries and keys, and of values.
    pub(super) widths: [usize; 2],
    /// Which component of jets this is about, of how many that the channels of each input have; `None` where inputs are
    /// no jets.
    pub(super) component: Option<[usize; 2]>,
}

#[derive(Debug)]
pub(super) struct Attention {
    heads: Heads,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Fused(Fused),
    Scores(Box<Scores>),
}

/// The elements that a step keeps.
pub(super) fn kept(step: &tokens::Attention, sizes: &Sizes) -> usize {
    let bytes = match Fused::widths(step, sizes) {
        Some(widths) => Fused::kept(step, sizes, widths).bytes(),
        None => Scores::kept(step, sizes).bytes(),
    };
    bytes / sizes.dtype.bytes()
}

/// Whether the tokens of a step, and its result, may have 16 bits. Differences of positions would lose their digits, and
/// kernels of attention write results as tokens of `f32`.
pub(super) fn take_16_bits(step: &tokens::Attention) -> [bool; 2] {
    [step.head.points.is_none(), false]
}

/// The sizes with the type of the tokens of an input: a context is wide.
fn of_side(sizes: &Sizes, side: usize) -> Sizes {
    match side {
        0 => sizes.end(0),
        _ => *sizes,
    }
}

/// The numbers of features of queries and keys, and of values.
pub(super) fn features(step: &tokens::Attention) -> [usize; 2] {
    [Part::Query, Part::Value].map(|part| step.head.features(part))
}

/// The elements of queries, keys and values with these widths.
pub(super) fn elements(
    step: &tokens::Attention,
    sizes: &Sizes,
    [width, of_values]: [usize; 2],
) -> [usize; 3] {
    step.places().map(|place| {
        let width = if place.part == Part::Value {
            of_values
        } else {
            width
        };
        sizes.rows_of(place.side) * place.heads * width
    })
}

impl Attention {
    pub(super) fn new(
        step: &tokens::Attention,
        device: &Device,
        sizes: &Sizes,
    ) -> Result<Self, Error> {
        if step.head.points.is_some() && step.geometry.head_norm {
            let expected = "distances, or heads that are normalised, not both";
            return Err(not_served("attention", expected));
        }
        let fused = Fused::widths(step, sizes);
        let heads = Heads {
            items: Items::of_norms(&step.geometry.norms())?,
            step: step.clone(),
            widths: fused.unwrap_or_else(|| features(step)),
            component: None,
        };
        let way = match fused {
            Some(_) => Way::Fused(Fused::new(step, device, sizes)?),
            None => Way::Scores(Box::new(Scores::new(&heads, device, sizes)?)),
        };
        Ok(Self { heads, way })
    }

    /// The shares of rows in the gradients of the logarithms of weights, their partial sums, and gradients of both
    /// inputs that are not wanted.
    fn room(&self, sizes: &Sizes, to: To) -> Room<4> {
        let rows = sizes.rows();
        let matrix = [rows, self.heads.weights()];
        let unwanted = |side: usize, to: Option<CUdeviceptr>| match to {
            Some(_) => 0,
            None => sizes.bytes(self.heads.side_len(sizes, side)),
        };
        Room::new([
            sizes.bytes(rows * self.heads.weights()),
            sizes.partial_bytes(matrix, &[(0, self.heads.weights())]),
            unwanted(0, to.x),
            unwanted(1, to.other),
        ])
    }
}

impl Heads {
    /// The number of weights of distances.
    fn weights(&self) -> usize {
        let of_points = self.step.head.points.map(|_| self.step.head.multivectors);
        self.step.heads * of_points.unwrap_or(0)
    }

    /// The elements of an input; none of one that is not there.
    fn side_len(&self, sizes: &Sizes, side: usize) -> usize {
        let channels = self.step.sides().get(side).copied();
        let width = channels.map_or(0, |channels| channels.width_over(self.step.head.blades));
        sizes.rows_of(side) * width
    }

    /// The parts of an input among its packed rows, with their features.
    fn parts(
        &self,
        sizes: &Sizes,
        (side, x): (usize, CUdeviceptr),
        features: [CUdeviceptr; 3],
        [weights, of_weights]: [CUdeviceptr; 2],
    ) -> Vec<ItemPart> {
        let (step, head) = (&self.step, &self.step.head);
        let ends = of_side(sizes, side);
        let set = |blades: &mut dyn Iterator<Item = usize>| {
            blades.fold(0_u32, |set, blade| set | 1 << blade)
        };
        let taken = set(&mut head.inner.iter().map(|&(blade, _)| blade));
        let signed = head.inner.iter().filter(|&&(_, sign)| sign < 0.0);
        let negative = set(&mut signed.map(|&(blade, _)| blade));
        let every = set(&mut (0..head.blades));
        let has_points = head.points.is_some();
        let side_channels = step.sides()[side];
        let (all, before) = match self.component {
            None => (side_channels, Channels::default()),
            Some([component, count]) => {
                (side_channels.times(count), side_channels.times(component))
            }
        };
        let parts = step.places_of(side).map(|place| {
            let own = head.channels().times(place.heads);
            let (taken, negative, distances) = match place.part {
                Part::Query => (taken, negative, has_points.then_some(Distances::Query)),
                Part::Key => (taken, 0, has_points.then_some(Distances::Key)),
                Part::Value => (every, 0, None),
            };
            let weighs = distances == Some(Distances::Query);
            ItemPart {
                items: ends.part(head.blades, [all, own, before.and(place.first)], x),
                features: features[place.part as usize],
                width: self.widths[usize::from(place.part == Part::Value)],
                weights: if weighs { weights } else { 0 },
                of_weights: if weighs { of_weights } else { 0 },
                logarithms: true,
                heads: place.heads,
                taken,
                negative,
                distances,
            }
        });
        parts.collect()
    }

    fn split(&self, sizes: &Sizes) -> Split {
        let geometry = &self.step.geometry;
        let points = self.step.head.points;
        let norm = match geometry.vectors {
            true => HeadNorm::Joint(joint::EPS),
            false => HeadNorm::Grades(ItemEps {
                multivectors: norm::EPS,
                scalars: norm::SCALAR_EPS,
            }),
        };
        Split {
            features: sizes.dtype,
            norm: geometry.head_norm.then_some(norm),
            points: points.map_or((0, 0), |points| (points.first, points.coordinates)),
            distance_eps: EPS,
        }
    }

    /// Writes the features of queries, keys and values.
    ///
    /// # Safety
    /// The contract of [`Ready::forward`] holds, and features have the widths of the step.
    pub(super) unsafe fn write(
        &self,
        site: &Site<'_>,
        given: Given,
        features: [CUdeviceptr; 3],
    ) -> Result<(), Error> {
        let sizes = &site.sizes;
        for (side, x) in self.inputs(given) {
            let parts = self.parts(sizes, (side, x), features, [given.parameters, 0]);
            let of_items = of_side(sizes, side).items_of(side, self.step.head.channels());
            let (target, split) = (site.target(), self.split(sizes));
            // SAFETY: parts are different channels of packed rows, each with its own features; the caller promises the rest.
            unsafe { self.items.heads(target, of_items, split, &parts) }?;
        }
        Ok(())
    }

    /// The inputs, with their numbers.
    fn inputs(&self, given: Given) -> impl Iterator<Item = (usize, CUdeviceptr)> {
        let count = self.step.sides().len();
        [given.x, given.other].into_iter().take(count).enumerate()
    }

    /// Writes the gradients of both inputs from the gradients of the features, and the shares of rows in the gradients
    /// of weights. An address of 0 stands for a gradient that is not wanted.
    ///
    /// # Safety
    /// The contract of [`Self::write`] holds.
    pub(super) unsafe fn write_gradient(
        &self,
        site: &Site<'_>,
        given: Given,
        features: [CUdeviceptr; 3],
        to: [CUdeviceptr; 2],
        of_weights: CUdeviceptr,
    ) -> Result<(), Error> {
        let sizes = &site.sizes;
        let weights = [given.parameters, of_weights];
        for ((side, x), to) in self.inputs(given).zip(to).filter(|(_, to)| *to != 0) {
            let parts = self.parts(sizes, (side, x), features, weights);
            let places = self.parts(sizes, (side, to), features, weights);
            let places: Vec<ItemTensor> = places.iter().map(|part| part.items).collect();
            let of_items = of_side(sizes, side).items_of(side, self.step.head.channels());
            let (target, split) = (site.target(), self.split(sizes));
            // SAFETY: as in `write`, and there is a number for each row and weight.
            unsafe {
                self.items
                    .heads_gradient(target, of_items, split, &parts, &places)
            }?;
        }
        Ok(())
    }

    /// The kernels for whole sequences, if they serve this call.
    pub(super) fn whole(
        &self,
        site: &Site<'_>,
        kernel: &Kernel,
    ) -> Result<Option<WholeAttention<'_>>, Error> {
        let of_items = site.sizes.items(self.step.head.channels());
        Ok(kernel.whole(site.target(), &self.items, of_items)?)
    }

    /// Tokens of the result at an address.
    pub(super) fn merged(&self, sizes: &Sizes, address: CUdeviceptr) -> ItemTensor {
        sizes.packed(self.step.head.blades, self.step.output(), address)
    }

    /// Writes attended values `[outer, inner, heads, width]` if `by_item`, else `[outer, heads, inner, width]`, as tokens; or back.
    ///
    /// # Safety
    /// The addresses point to attended values and to tokens of the result.
    pub(super) unsafe fn merge(
        &self,
        site: &Site<'_>,
        values: CUdeviceptr,
        inner: usize,
        by_item: bool,
        (tokens, back): (CUdeviceptr, bool),
    ) -> Result<(), Error> {
        let (step, sizes, width) = (&self.step, &site.sizes, self.widths[1]);
        let [head, item] = match by_item {
            true => [width, step.heads * width],
            false => [inner * width, width],
        };
        let features = Features {
            features: values,
            dtype: sizes.dtype,
            inner,
            heads: step.heads,
            strides: [inner * step.heads * width, head, item],
        };
        let merged = self.merged(sizes, tokens);
        let of_items = sizes.items(step.head.channels());
        let target = site.target();
        // SAFETY: the caller promises it.
        Ok(unsafe { self.items.merge(target, of_items, features, merged, back) }?)
    }
}

impl Ready for Attention {
    fn forward_bytes(&self, sizes: &Sizes) -> usize {
        match &self.way {
            Way::Fused(_) => 0,
            Way::Scores(way) => way.forward_room(&self.heads, sizes).bytes(),
        }
    }

    fn backward_bytes(&self, sizes: &Sizes, to: To) -> usize {
        let of_way = match &self.way {
            Way::Fused(way) => way.backward_room(&self.heads, sizes).bytes(),
            Way::Scores(way) => way.backward_room(&self.heads, sizes, to).bytes(),
        };
        self.room(sizes, to).bytes() + of_way
    }

    unsafe fn forward(&self, site: &Site<'_>, given: Given, y: CUdeviceptr) -> Result<(), Error> {
        // SAFETY: the caller promises it.
        unsafe {
            match &self.way {
                Way::Fused(way) => way.forward(&self.heads, site, given, y),
                Way::Scores(way) => way.forward(&self.heads, site, given, y),
            }
        }
    }

    unsafe fn backward(
        &self,
        site: &Site<'_>,
        given: Given,
        g: CUdeviceptr,
        to: To,
    ) -> Result<(), Error> {
        let sizes = &site.sizes;
        let room = self.room(sizes, to);
        let [of_weights, partials, unwanted, unwanted_context] = room.at(given.workspace);
        let own = Given {
            workspace: given.workspace + room.bytes() as CUdeviceptr,
            ..given
        };
        let of_inputs = [
            to.x.unwrap_or(unwanted),
            to.other.unwrap_or(unwanted_context),
        ];
        // SAFETY: the room has the elements of all, with the way's own room after it; the caller promises the rest.
        unsafe {
            let features = match &self.way {
                Way::Fused(way) => way.backward(&self.heads, site, own, g)?,
                Way::Scores(way) => way.backward(&self.heads, site, own, (g, to))?,
            };
            self.heads
                .write_gradient(site, given, features, of_inputs, of_weights)?;
            let (count, rows) = (self.heads.weights(), sizes.rows());
            match to.parameters {
                Some(to) => {
                    site.column_sums([rows, count], &[(0, count)], [of_weights, partials, to])
                }
                None => Ok(()),
            }
        }
    }
}
