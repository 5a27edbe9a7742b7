//! The derivative of attention by matrix products, with all scores of a sample in memory.
//!
//! The passes on the CPU have the same formulas. Nothing is kept: the backward pass computes features and shares again.

use flashcliff::Device;
use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::items::Items;
use flashcliff::cuda::matrix::{MatrixForm, MatrixProduct};
use flashcliff::cuda::rows::Rows;

use super::attention::{Heads, elements, features};
use super::scores::{Groups, folds, is_in_order, regroup, row_scores, workspace_bytes};
use super::{Given, Ready, Site, Sizes, To};
use crate::Error;
use crate::cuda::room::Room;
use crate::tokens;

#[derive(Debug)]
pub(super) struct AttentionTangent {
    /// The heads of tokens, and of their changes.
    heads: [Heads; 2],
    rows: Rows,
    products: Products,
}

/// The products of the groups of a batch, each in place of what is there, and added to it.
#[derive(Clone, Copy, Debug)]
struct Products {
    scores: MatrixProduct,
    /// The changes of scores, multiplied by their factor.
    changes: [MatrixProduct; 2],
    out: [MatrixProduct; 2],
    of_shares: MatrixProduct,
    of_query: [MatrixProduct; 2],
    of_key: [MatrixProduct; 2],
    of_value: MatrixProduct,
}

impl Products {
    fn new(step: &tokens::Attention, sizes: &Sizes) -> Self {
        let [width, of_values] = features(step);
        let Groups {
            count,
            queries,
            keys,
        } = Groups::of(step, sizes);
        let product = |form, of: [usize; 3]| MatrixProduct {
            count,
            ..sizes.product(form, of)
        };
        let both = |own: MatrixProduct| [false, true].map(|adds| MatrixProduct { adds, ..own });
        let scaled = |form, of| {
            both(MatrixProduct {
                scale: step.scale(),
                ..product(form, of)
            })
        };
        let (plain, right, left) = (
            MatrixForm::Plain,
            MatrixForm::RightTransposed,
            MatrixForm::LeftTransposed,
        );
        Self {
            scores: product(right, [queries, keys, width]),
            changes: scaled(right, [queries, keys, width]),
            out: both(product(plain, [queries, of_values, keys])),
            of_shares: product(right, [queries, keys, of_values]),
            of_query: scaled(plain, [queries, width, keys]),
            of_key: scaled(left, [keys, width, queries]),
            of_value: product(left, [keys, of_values, queries]),
        }
    }

    fn all(&self) -> Vec<MatrixProduct> {
        let pairs = [self.changes, self.out, self.of_query, self.of_key];
        let single = [self.scores, self.of_shares, self.of_value];
        pairs.concat().into_iter().chain(single).collect()
    }
}

/// What both passes compute first.
#[derive(Clone, Copy)]
struct Shared {
    /// Features in the order of rows, which the pass may use again.
    in_rows: [CUdeviceptr; 3],
    /// Queries, keys and values in the order of groups, and their changes.
    own: [CUdeviceptr; 3],
    along: [CUdeviceptr; 3],
    /// The shares of keys, and the changes of scores.
    shares: CUdeviceptr,
    changes: CUdeviceptr,
    workspace: CUdeviceptr,
}

impl AttentionTangent {
    pub(super) fn new(
        step: &tokens::AttentionTangent,
        device: &Device,
        sizes: &Sizes,
    ) -> Result<Self, Error> {
        let own = &step.attention;
        let products = Products::new(own, sizes);
        for product in products.all() {
            product.prepare(device)?;
        }
        let heads = |half| -> Result<Heads, Error> {
            Ok(Heads {
                items: Items::of_norms(&own.geometry.norms())?,
                step: own.clone(),
                widths: features(own),
                half: Some(half),
            })
        };
        Ok(Self {
            heads: [heads(0)?, heads(1)?],
            rows: Rows::new(device, sizes.dtype)?,
            products,
        })
    }

    fn step(&self) -> &tokens::Attention {
        &self.heads[0].step
    }

    /// The memory of [`Shared`].
    fn shared_room(&self, sizes: &Sizes) -> Room<12> {
        let step = self.step();
        let [query, key, value] =
            elements(step, sizes, self.heads[0].widths).map(|count| sizes.bytes(count));
        let in_rows = |bytes| if is_in_order(step) { 0 } else { bytes };
        let scores = sizes.bytes(Groups::of(step, sizes).scores());
        Room::new([
            in_rows(query),
            in_rows(key),
            in_rows(value),
            query,
            key,
            value,
            query,
            key,
            value,
            scores,
            scores,
            workspace_bytes(&self.products.all()),
        ])
    }

    /// The bytes of what queries attend to.
    fn out_bytes(&self, sizes: &Sizes) -> usize {
        sizes.bytes(sizes.rows() * self.step().heads * self.heads[0].widths[1])
    }

    /// The gradients of what queries attend to, of shares and of their changes, of features and of their changes, and
    /// what is between the gradient of scores and that of a mask.
    fn backward_room(&self, sizes: &Sizes, to: To) -> Room<11> {
        let step = self.step();
        let [query, key, value] =
            elements(step, sizes, self.heads[0].widths).map(|count| sizes.bytes(count));
        let scores = sizes.bytes(Groups::of(step, sizes).scores());
        let between = folds(step, sizes, to).map_or([0; 2], |folds| folds.between());
        let [first, second] = between.map(|count| sizes.bytes(count));
        let out = self.out_bytes(sizes);
        Room::new([
            out, scores, scores, query, key, value, query, key, value, first, second,
        ])
    }

    /// Writes what both passes need. More memory comes after theirs.
    ///
    /// # Safety
    /// The contract of [`Ready::forward`] holds.
    unsafe fn shared(&self, site: &Site<'_>, given: Given) -> Result<Shared, Error> {
        let (step, products) = (self.step(), &self.products);
        let room = self.shared_room(&site.sizes).at(given.workspace);
        let [first, second, third, rest @ ..] = room;
        let [
            query,
            key,
            value,
            query1,
            key1,
            value1,
            shares,
            changes,
            workspace,
        ] = rest;
        let in_rows = [first, second, third];
        let (own, along) = ([query, key, value], [query1, key1, value1]);
        // SAFETY: the room has the elements of all; the caller promises the rest.
        unsafe {
            for (heads, grouped) in self.heads.iter().zip([own, along]) {
                if is_in_order(step) {
                    heads.write(site, given, grouped)?;
                } else {
                    heads.write(site, given, in_rows)?;
                    regroup(&self.rows, heads, site, [in_rows, grouped], false)?;
                }
            }
            site.multiply(products.scores, [query, key, shares, workspace])?;
            let scores = row_scores(step, site, given);
            self.rows.softmax(site.target(), scores, shares)?;
            site.multiply(products.changes[0], [query1, key, changes, workspace])?;
            site.multiply(products.changes[1], [query, key1, changes, workspace])?;
        }
        Ok(Shared {
            in_rows,
            own,
            along,
            shares,
            changes,
            workspace,
        })
    }

    /// The rows of scores, and the keys.
    fn matrix(&self, sizes: &Sizes) -> [usize; 2] {
        let groups = Groups::of(self.step(), sizes);
        [groups.count * groups.queries, groups.keys]
    }

    /// The memory after what [`Self::shared`] writes.
    fn behind(&self, sizes: &Sizes, given: Given) -> CUdeviceptr {
        given.workspace + self.shared_room(sizes).bytes() as CUdeviceptr
    }

    /// Writes the gradients of the inputs from the gradients of features and of their changes.
    ///
    /// # Safety
    /// The contract of [`Ready::forward`] holds.
    unsafe fn write(
        &self,
        site: &Site<'_>,
        given: Given,
        (shared, of): (&Shared, [[CUdeviceptr; 3]; 2]),
        to: To,
    ) -> Result<(), Error> {
        let to = [to.x, to.other].map(Option::unwrap_or_default);
        for (heads, grouped) in self.heads.iter().zip(of) {
            // SAFETY: the order of the stream keeps what both halves have in one place apart; the caller promises the rest.
            unsafe {
                let features = match is_in_order(self.step()) {
                    true => grouped,
                    false => {
                        regroup(&self.rows, heads, site, [grouped, shared.in_rows], true)?;
                        shared.in_rows
                    }
                };
                heads.write_gradient(site, given, features, to, 0)?;
            }
        }
        Ok(())
    }
}

impl Ready for AttentionTangent {
    fn forward_bytes(&self, sizes: &Sizes) -> usize {
        self.shared_room(sizes).bytes() + Room::new([self.out_bytes(sizes)]).bytes()
    }

    fn backward_bytes(&self, sizes: &Sizes, to: To) -> usize {
        self.shared_room(sizes).bytes() + self.backward_room(sizes, to).bytes()
    }

    unsafe fn forward(&self, site: &Site<'_>, given: Given, y: CUdeviceptr) -> Result<(), Error> {
        let (step, sizes, products) = (self.step(), &site.sizes, &self.products);
        let out = self.behind(sizes, given);
        // SAFETY: the workspace has the elements of all; the caller promises the rest.
        unsafe {
            let own = self.shared(site, given)?;
            let (matrix, work) = (self.matrix(sizes), own.workspace);
            // Changes of scores become changes of shares.
            self.rows
                .softmax_gradient(site.target(), matrix, own.shares, own.changes)?;
            site.multiply(products.out[0], [own.changes, own.own[2], out, work])?;
            site.multiply(products.out[1], [own.shares, own.along[2], out, work])?;
            self.heads[0].merge(site, out, sizes.batch.items, step.shared, (y, false))
        }
    }

    unsafe fn backward(
        &self,
        site: &Site<'_>,
        given: Given,
        g: CUdeviceptr,
        to: To,
    ) -> Result<(), Error> {
        let (step, sizes, products) = (self.step(), &site.sizes, &self.products);
        let room = self.backward_room(sizes, to);
        let [out, slopes, second, rest @ ..] = room.at(self.behind(sizes, given));
        let [
            of_query,
            of_key,
            of_value,
            query1,
            key1,
            value1,
            first,
            next,
        ] = rest;
        let (matrix, target) = (self.matrix(sizes), site.target());
        // SAFETY: the workspace has the elements of all; the caller promises the rest.
        unsafe {
            let own = self.shared(site, given)?;
            let by = |left, right, to| [left, right, to, own.workspace];
            let ([q, k, v], [q1, k1, v1]) = (own.own, own.along);
            self.heads[0].merge(site, out, sizes.batch.items, step.shared, (g, true))?;
            site.multiply(products.of_shares, by(out, v, slopes))?;
            site.multiply(products.of_shares, by(out, v1, second))?;
            let given_scores = [own.shares, own.changes];
            self.rows
                .softmax_second(target, matrix, given_scores, [slopes, second])?;
            self.rows
                .softmax_gradient(target, matrix, own.shares, own.changes)?;
            site.multiply(products.of_query[0], by(second, k, of_query))?;
            site.multiply(products.of_query[1], by(slopes, k1, of_query))?;
            site.multiply(products.of_key[0], by(second, q, of_key))?;
            site.multiply(products.of_key[1], by(slopes, q1, of_key))?;
            site.multiply(products.of_value, by(own.changes, out, of_value))?;
            site.multiply(products.of_query[0], by(slopes, k, query1))?;
            site.multiply(products.of_key[0], by(slopes, q, key1))?;
            site.multiply(products.of_value, by(own.shares, out, value1))?;
            if let Some((folds, (of_mask, _))) = folds(step, sizes, to).zip(to.mask) {
                match folds.is_empty() {
                    true => site.copy(second, of_mask, matrix[0] * matrix[1])?,
                    false => folds.run(&self.rows, site, second, [first, next], of_mask)?,
                }
            }
            let of = [[of_query, of_key, of_value], [query1, key1, value1]];
            self.write(site, given, (&own, of), to)
        }
    }
}
