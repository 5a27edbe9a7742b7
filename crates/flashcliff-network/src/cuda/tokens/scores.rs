//! Attention by matrix products and a softmax. All scores of a sample are in memory, and a mask is added to them.
//!
//! A ragged batch is one sample, whose items see the keys of their sequence: the memory of scores depends on the plan
//! alone, and a captured step can run on other sequences.

use flashcliff::Device;
use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::matrix::{MatrixForm, MatrixProduct};
use flashcliff::cuda::rows::{RowScores, Rows};

use super::attention::{Heads, elements, features};
use super::mask::Folds;
use super::{Given, Site, Sizes, To};
use crate::Error;
use crate::cuda::room::Room;
use crate::tokens::Attention;
use crate::tokens::features::Part;

#[derive(Debug)]
pub(super) struct Scores {
    rows: Rows,
    products: Products,
}

/// The products of the groups of a batch.
#[derive(Clone, Copy, Debug)]
struct Products {
    scores: MatrixProduct,
    out: MatrixProduct,
    /// The gradients of shares, queries, keys and values.
    of_shares: MatrixProduct,
    of_query: MatrixProduct,
    of_key: MatrixProduct,
    of_value: MatrixProduct,
}

/// Groups of queries and keys. Heads that share keys are more queries of one group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Groups {
    pub(super) count: usize,
    pub(super) queries: usize,
    pub(super) keys: usize,
}

impl Groups {
    pub(super) fn of(step: &Attention, sizes: &Sizes) -> Self {
        let (samples, items) = (sizes.batch.samples, sizes.batch.items);
        let (count, queries) = match step.shared {
            true => (samples, items * step.heads),
            false => (samples * step.heads, items),
        };
        Self {
            count,
            queries,
            keys: keys(step, sizes),
        }
    }

    pub(super) fn scores(self) -> usize {
        self.count * self.queries * self.keys
    }
}

impl Products {
    fn new(heads: &Heads, sizes: &Sizes) -> Self {
        let [width, of_values] = heads.widths;
        let Groups {
            count,
            queries,
            keys,
        } = Groups::of(&heads.step, sizes);
        let product = |form, of: [usize; 3]| MatrixProduct {
            count,
            ..sizes.product(form, of)
        };
        // The gradient of scores is that of a mask; a factor stands between scores and products of queries and keys alone.
        let scaled = |form, of| MatrixProduct {
            scale: heads.step.scale(),
            ..product(form, of)
        };
        let (plain, right, left) = (
            MatrixForm::Plain,
            MatrixForm::RightTransposed,
            MatrixForm::LeftTransposed,
        );
        Self {
            scores: product(right, [queries, keys, width]),
            out: product(plain, [queries, of_values, keys]),
            of_shares: product(right, [queries, keys, of_values]),
            of_query: scaled(plain, [queries, width, keys]),
            of_key: scaled(left, [keys, width, queries]),
            of_value: product(left, [keys, of_values, queries]),
        }
    }

    fn forward(&self) -> [MatrixProduct; 2] {
        [self.scores, self.out]
    }

    fn backward(&self) -> [MatrixProduct; 4] {
        [self.of_shares, self.of_query, self.of_key, self.of_value]
    }
}

pub(super) fn workspace_bytes(products: &[MatrixProduct]) -> usize {
    let bytes = products.iter().map(MatrixProduct::workspace_bytes);
    bytes.max().unwrap_or(0)
}

impl Scores {
    pub(super) fn new(heads: &Heads, device: &Device, sizes: &Sizes) -> Result<Self, Error> {
        let products = Products::new(heads, sizes);
        let mut all = products.forward().into_iter().chain(products.backward());
        all.try_for_each(|product| product.prepare(device))?;
        Ok(Self {
            rows: Rows::new(device, sizes.dtype)?,
            products,
        })
    }

    /// Queries, keys and values in the order of groups, and the shares of keys.
    pub(super) fn kept(step: &Attention, sizes: &Sizes) -> Room<4> {
        let [query, key, value] = elements(step, sizes, features(step));
        let shares = Groups::of(step, sizes).scores();
        Room::new([query, key, value, shares].map(|count| sizes.bytes(count)))
    }

    /// Features in the order of rows, what queries attend to, and the workspace of products.
    pub(super) fn forward_room(&self, heads: &Heads, sizes: &Sizes) -> Room<5> {
        let (step, rows) = (&heads.step, sizes.rows());
        let all = elements(step, sizes, heads.widths);
        let of_rows = all.map(|count| match is_in_order(step) {
            true => 0,
            false => sizes.bytes(count),
        });
        let [query, key, value] = of_rows;
        let out = sizes.bytes(rows * step.heads * heads.widths[1]);
        let workspace = workspace_bytes(&self.products.forward());
        Room::new([query, key, value, out, workspace])
    }

    /// The gradients of what queries attend to, of scores, of features in the order of groups and in that of rows,
    /// what is between that of scores and that of a mask, and the workspace of products.
    pub(super) fn backward_room(&self, heads: &Heads, sizes: &Sizes, to: To) -> Room<11> {
        let (step, rows) = (&heads.step, sizes.rows());
        let each = elements(step, sizes, heads.widths).map(|count| sizes.bytes(count));
        let [query, key, value] = each;
        let in_rows = each.map(|bytes| if is_in_order(step) { 0 } else { bytes });
        let out = sizes.bytes(rows * step.heads * heads.widths[1]);
        let folds = folds(step, sizes, to);
        let scores = match &folds {
            Some(folds) if folds.is_empty() => 0,
            _ => sizes.bytes(Groups::of(step, sizes).scores()),
        };
        let between = folds.map_or([0; 2], |folds| folds.between());
        let [first, second] = between.map(|count| sizes.bytes(count));
        let workspace = workspace_bytes(&self.products.backward());
        let [of_query, of_key, of_value] = in_rows;
        Room::new([
            out, scores, query, key, value, of_query, of_key, of_value, first, second, workspace,
        ])
    }

    /// # Safety
    /// The contract of [`Ready::forward`](super::Ready::forward) holds.
    pub(super) unsafe fn forward(
        &self,
        heads: &Heads,
        site: &Site<'_>,
        given: Given,
        y: CUdeviceptr,
    ) -> Result<(), Error> {
        let (step, sizes) = (&heads.step, &site.sizes);
        let [query, key, value, shares] = Self::kept(step, sizes).at(given.kept);
        let [row_query, row_key, row_value, out, workspace] =
            self.forward_room(heads, sizes).at(given.workspace);
        let grouped = [query, key, value];
        let products = &self.products;
        // SAFETY: what is kept and the room have the elements of all; the caller promises the rest.
        unsafe {
            if is_in_order(step) {
                heads.write(site, given, grouped)?;
            } else {
                let in_rows = [row_query, row_key, row_value];
                heads.write(site, given, in_rows)?;
                regroup(&self.rows, heads, site, [in_rows, grouped], false)?;
            }
            site.multiply(products.scores, [query, key, shares, workspace])?;
            let scores = row_scores(step, site, given);
            self.rows.softmax(site.target(), scores, shares)?;
            site.multiply(products.out, [shares, value, out, workspace])?;
            heads.merge(site, out, sizes.batch.items, step.shared, (y, false))
        }
    }

    /// Writes the gradients of features and of the mask, and returns where the former are.
    ///
    /// # Safety
    /// The contract of [`Ready::forward`](super::Ready::forward) holds.
    pub(super) unsafe fn backward(
        &self,
        heads: &Heads,
        site: &Site<'_>,
        given: Given,
        (g, to): (CUdeviceptr, To),
    ) -> Result<[CUdeviceptr; 3], Error> {
        let (step, sizes) = (&heads.step, &site.sizes);
        let [query, key, value, shares] = Self::kept(step, sizes).at(given.kept);
        let room = self.backward_room(heads, sizes, to).at(given.workspace);
        let [out, own_scores, of_query, of_key, of_value, rest @ ..] = room;
        let [row_query, row_key, row_value, first, second, workspace] = rest;
        let in_rows = [row_query, row_key, row_value];
        let folds = folds(step, sizes, to).zip(to.mask);
        // Without a sum the gradient of scores is made where that of the mask belongs.
        let of_scores = match &folds {
            Some((folds, (of_mask, _))) if folds.is_empty() => *of_mask,
            _ => own_scores,
        };
        let (products, groups) = (&self.products, Groups::of(step, sizes));
        let queries = [groups.count * groups.queries, groups.keys];
        let by = |left, right, to| [left, right, to, workspace];
        // SAFETY: what is kept and the room have the elements of all; the caller promises the rest.
        unsafe {
            heads.merge(site, out, sizes.batch.items, step.shared, (g, true))?;
            site.multiply(products.of_value, by(shares, out, of_value))?;
            site.multiply(products.of_shares, by(out, value, of_scores))?;
            self.rows
                .softmax_gradient(site.target(), queries, shares, of_scores)?;
            site.multiply(products.of_query, by(of_scores, key, of_query))?;
            site.multiply(products.of_key, by(of_scores, query, of_key))?;
            if let Some((folds, (of_mask, _))) = folds {
                folds.run(&self.rows, site, of_scores, [first, second], of_mask)?;
            }
            let grouped = [of_query, of_key, of_value];
            if is_in_order(step) {
                return Ok(grouped);
            }
            regroup(&self.rows, heads, site, [grouped, in_rows], true)?;
            Ok(in_rows)
        }
    }
}

/// Copies features from the order of rows to that of groups, or back.
///
/// # Safety
/// The addresses point to the features.
pub(super) unsafe fn regroup(
    rows: &Rows,
    heads: &Heads,
    site: &Site<'_>,
    [from, to]: [[CUdeviceptr; 3]; 2],
    back: bool,
) -> Result<(), Error> {
    let sizes = &site.sizes;
    for (place, (from, to)) in heads.step.places().iter().zip(from.into_iter().zip(to)) {
        let width = heads.widths[usize::from(place.part == Part::Value)];
        let [first, second] = match back {
            true => [place.heads, items(sizes, place.side)],
            false => [items(sizes, place.side), place.heads],
        };
        let sizes = [sizes.batch.samples, first, second, width];
        // SAFETY: the caller promises it.
        unsafe { rows.swap_axes(site.target(), sizes, from, to) }?;
    }
    Ok(())
}

/// The items of a sample on a side.
fn items(sizes: &Sizes, side: usize) -> usize {
    [sizes.batch.items, sizes.batch.context][side]
}

/// The keys of a sample.
fn keys(step: &Attention, sizes: &Sizes) -> usize {
    items(sizes, step.places()[1].side)
}

/// Whether features have the order of groups as the kernels of heads write them.
pub(super) fn is_in_order(step: &Attention) -> bool {
    step.shared || step.heads == 1
}

/// The launches between the gradient of scores and that of the mask, if it is wanted.
pub(super) fn folds(step: &Attention, sizes: &Sizes, to: To) -> Option<Folds> {
    let (_, mask) = to.mask?;
    let scores = [
        sizes.batch.samples,
        step.heads,
        sizes.batch.items,
        keys(step, sizes),
    ];
    Some(Folds::new(scores, step.shared, mask))
}

/// What hides keys from queries.
pub(super) fn row_scores(step: &Attention, site: &Site<'_>, given: Given) -> RowScores {
    let groups = Groups::of(step, &site.sizes);
    let (mask, [samples, heads, queries, keys]) = given.mask;
    let stride = |size: usize, elements: usize| if size > 1 { elements } else { 0 };
    let (sequences, bounds) = match &site.sequences {
        None => (0, [0; 2]),
        Some(own) => {
            let sides = [0, step.places()[1].side];
            (own[0].count(), sides.map(|side| own[side].address))
        }
    };
    RowScores {
        groups: groups.count,
        queries: groups.queries,
        keys: groups.keys,
        heads: step.heads,
        heads_are_queries: step.shared,
        mask,
        mask_strides: [
            stride(samples, heads * queries * keys),
            stride(heads, queries * keys),
            stride(queries, keys),
        ],
        bounds,
        sequences,
        scale: step.scale(),
    }
}
