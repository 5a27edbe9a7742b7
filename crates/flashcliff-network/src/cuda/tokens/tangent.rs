//! Derivatives of attention by matrix products, with all components of scores of a sample in memory.
//!
//! The passes on the CPU have the same formulas. Nothing is kept: the backward pass computes features and shares again.

use flashcliff::Device;
use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::items::Items;
use flashcliff::cuda::matrix::{MatrixForm, MatrixProduct};
use flashcliff::cuda::rows::{RowJets, RowTables, Rows};

use super::attention::{Heads, elements, features};
use super::scores::{Groups, folds, is_in_order, regroup, row_scores, workspace_bytes};
use super::{Given, Ready, Site, Sizes, To};
use crate::Error;
use crate::cuda::room::{ALIGNED, Room};
use crate::tokens;
use crate::tokens::jet::subsets;

#[derive(Debug)]
pub(super) struct AttentionTangent {
    /// The heads of each component of tokens.
    heads: Vec<Heads>,
    rows: Rows,
    jets: RowJets,
    products: Products,
}

/// The products of the groups of a batch: each in place of what is there, or added to it.
#[derive(Clone, Copy, Debug)]
struct Products {
    scores: MatrixProduct,
    /// The components of scores after the first, multiplied by their factor.
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

/// A part of memory for each component, in equal distances.
#[derive(Clone, Copy)]
struct Parts {
    first: CUdeviceptr,
    bytes: usize,
}

impl Parts {
    /// The bytes from a part of so many bytes to the next.
    fn apart(bytes: usize) -> usize {
        bytes.next_multiple_of(ALIGNED)
    }

    fn at(self, component: usize) -> CUdeviceptr {
        self.first + (component * Self::apart(self.bytes)) as CUdeviceptr
    }
}

/// What both passes compute first.
#[derive(Clone, Copy)]
struct Shared {
    /// Features in the order of rows, which the pass may use again.
    in_rows: [CUdeviceptr; 3],
    /// Queries, keys and values in the order of groups.
    features: [Parts; 3],
    shares: Parts,
    /// The components of scores after the first, and then what the backward pass makes of gradients of shares.
    scores: Parts,
    workspace: CUdeviceptr,
}

impl AttentionTangent {
    pub(super) fn new(
        step: &tokens::AttentionTangent,
        device: &Device,
        sizes: &Sizes,
    ) -> Result<Self, Error> {
        let (own, components) = (&step.attention, step.components);
        let products = Products::new(own, sizes);
        for product in products.all() {
            product.prepare(device)?;
        }
        let heads = |component| -> Result<Heads, Error> {
            Ok(Heads {
                items: Items::of_norms(&own.geometry.norms())?,
                step: own.clone(),
                widths: features(own),
                component: Some([component, components]),
            })
        };
        Ok(Self {
            heads: (0..components).map(heads).collect::<Result<_, _>>()?,
            rows: Rows::new(device, sizes.dtype)?,
            jets: RowJets::new(device, sizes.dtype, step.components)?,
            products,
        })
    }

    fn step(&self) -> &tokens::Attention {
        &self.heads[0].step
    }

    /// The set of all directions.
    fn all(&self) -> usize {
        self.heads.len() - 1
    }

    /// The bytes of a component of queries, of keys and of values.
    fn feature_bytes(&self, sizes: &Sizes) -> [usize; 3] {
        elements(self.step(), sizes, self.heads[0].widths).map(|count| sizes.bytes(count))
    }

    /// The bytes of a component of scores.
    fn score_bytes(&self, sizes: &Sizes) -> usize {
        sizes.bytes(Groups::of(self.step(), sizes).scores())
    }

    /// The memory of [`Shared`].
    fn shared_room(&self, sizes: &Sizes) -> Room<9> {
        let features = self.feature_bytes(sizes);
        let in_rows = |bytes| if is_in_order(self.step()) { 0 } else { bytes };
        let of = |bytes| self.heads.len() * Parts::apart(bytes);
        let ([query, key, value], scores) = (features, self.score_bytes(sizes));
        Room::new([
            in_rows(query),
            in_rows(key),
            in_rows(value),
            of(query),
            of(key),
            of(value),
            of(scores),
            of(scores),
            workspace_bytes(&self.products.all()),
        ])
    }

    /// The bytes of what queries attend to.
    fn out_bytes(&self, sizes: &Sizes) -> usize {
        sizes.bytes(sizes.rows() * self.step().heads * self.heads[0].widths[1])
    }

    /// The gradients of what queries attend to, and of the features of a component, and what is between the gradient of
    /// scores and that of a mask.
    fn backward_room(&self, sizes: &Sizes, to: To) -> Room<6> {
        let [query, key, value] = self.feature_bytes(sizes);
        let between = folds(self.step(), sizes, to).map_or([0; 2], |folds| folds.between());
        let [first, second] = between.map(|count| sizes.bytes(count));
        Room::new([self.out_bytes(sizes), query, key, value, first, second])
    }

    /// The tables of shares and of scores.
    fn tables(&self, sizes: &Sizes) -> RowTables {
        let groups = Groups::of(self.step(), sizes);
        let bytes = Parts::apart(self.score_bytes(sizes));
        RowTables {
            rows: groups.count * groups.queries,
            keys: groups.keys,
            apart: bytes / sizes.bytes(1),
        }
    }

    /// Writes what both passes need. More memory comes after theirs.
    ///
    /// # Safety
    /// The contract of [`Ready::forward`] holds.
    unsafe fn shared(&self, site: &Site<'_>, given: Given) -> Result<Shared, Error> {
        let (step, sizes, products) = (self.step(), &site.sizes, &self.products);
        let room = self.shared_room(sizes).at(given.workspace);
        let [
            query,
            key,
            value,
            queries,
            keys,
            values,
            shares,
            scores,
            workspace,
        ] = room;
        let of = self.feature_bytes(sizes);
        let parts = |first, bytes| Parts { first, bytes };
        let score_bytes = self.score_bytes(sizes);
        let shared = Shared {
            in_rows: [query, key, value],
            features: [
                parts(queries, of[0]),
                parts(keys, of[1]),
                parts(values, of[2]),
            ],
            shares: parts(shares, score_bytes),
            scores: parts(scores, score_bytes),
            workspace,
        };
        let Shared {
            features,
            shares,
            scores,
            ..
        } = shared;
        // SAFETY: the room has the elements of all; the caller promises the rest.
        unsafe {
            for (component, heads) in self.heads.iter().enumerate() {
                let grouped = features.map(|own| own.at(component));
                if is_in_order(step) {
                    heads.write(site, given, grouped)?;
                } else {
                    heads.write(site, given, shared.in_rows)?;
                    let places = [shared.in_rows, grouped];
                    regroup(&self.rows, heads, site, places, false)?;
                }
            }
            let product = |left, right, to| {
                let [query, key, _] = features;
                [query.at(left), key.at(right), to, workspace]
            };
            site.multiply(products.scores, product(0, 0, shares.at(0)))?;
            let own = row_scores(step, site, given);
            self.rows.softmax(site.target(), own, shares.at(0))?;
            for set in 1..=self.all() {
                for (at, (left, right)) in subsets(set).enumerate() {
                    let adds = usize::from(at > 0);
                    site.multiply(products.changes[adds], product(left, right, scores.at(set)))?;
                }
            }
            let tables = [shares.first, scores.first];
            self.jets
                .softmax(site.target(), self.tables(sizes), tables)?;
        }
        Ok(shared)
    }

    /// The memory after what [`Self::shared`] writes.
    fn behind(&self, sizes: &Sizes, given: Given) -> CUdeviceptr {
        given.workspace + self.shared_room(sizes).bytes() as CUdeviceptr
    }

    /// Writes the gradients of a component of the inputs from the gradients of its features.
    ///
    /// # Safety
    /// The contract of [`Ready::forward`] holds.
    unsafe fn write(
        &self,
        site: &Site<'_>,
        given: Given,
        (shared, heads, of): (&Shared, &Heads, [CUdeviceptr; 3]),
        to: To,
    ) -> Result<(), Error> {
        let to = [to.x, to.other].map(Option::unwrap_or_default);
        // SAFETY: the order of the stream keeps apart what components have in one place; the caller promises the rest.
        unsafe {
            let features = match is_in_order(self.step()) {
                true => of,
                false => {
                    regroup(&self.rows, heads, site, [of, shared.in_rows], true)?;
                    shared.in_rows
                }
            };
            heads.write_gradient(site, given, features, to, 0)
        }
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
            for (at, (set, others)) in subsets(self.all()).enumerate() {
                let (shares, values) = (own.shares.at(set), own.features[2].at(others));
                let product = products.out[usize::from(at > 0)];
                site.multiply(product, [shares, values, out, own.workspace])?;
            }
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
        let [out, of_query, of_key, of_value, first, next] = room.at(self.behind(sizes, given));
        let target = site.target();
        // SAFETY: the workspace has the elements of all; the caller promises the rest.
        unsafe {
            let own = self.shared(site, given)?;
            let by = |left, right, to| [left, right, to, own.workspace];
            let [queries, keys, values] = own.features;
            // Scores are read no more.
            let (shares, slopes) = (own.shares, own.scores);
            self.heads[0].merge(site, out, sizes.batch.items, step.shared, (g, true))?;
            for component in 0..=self.all() {
                let product = by(out, values.at(component), slopes.at(component));
                site.multiply(products.of_shares, product)?;
            }
            let tables = [shares.first, slopes.first];
            self.jets
                .softmax_gradient(target, self.tables(sizes), tables)?;
            for (component, heads) in self.heads.iter().enumerate() {
                let others = self.all() & !component;
                for (at, (of, left)) in subsets(others).enumerate() {
                    let (adds, slope) = (usize::from(at > 0), slopes.at(of));
                    let [of_queries, of_keys] = [products.of_query[adds], products.of_key[adds]];
                    site.multiply(of_queries, by(slope, keys.at(left), of_query))?;
                    site.multiply(of_keys, by(slope, queries.at(left), of_key))?;
                }
                site.multiply(products.of_value, by(shares.at(others), out, of_value))?;
                let of = [of_query, of_key, of_value];
                self.write(site, given, (&own, heads, of), to)?;
            }
            if let Some((folds, (of_mask, _))) = folds(step, sizes, to).zip(to.mask) {
                let (of_scores, tables) = (slopes.at(self.all()), self.tables(sizes));
                match folds.is_empty() {
                    true => site.copy(of_scores, of_mask, tables.rows * tables.keys)?,
                    false => folds.run(&self.rows, site, of_scores, [first, next], of_mask)?,
                }
            }
        }
        Ok(())
    }
}
