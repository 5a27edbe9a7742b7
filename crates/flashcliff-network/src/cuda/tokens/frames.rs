//! Maps to and from the frames of tokens.

use flashcliff::Device;
use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::rows::{RowFrames, Rows};

use super::constants::{Constants, Table};
use super::{Given, Ready, Site, Sizes, To};
use crate::Error;
use crate::cuda::room::Room;
use crate::tokens;

#[derive(Debug)]
pub(super) struct Frames {
    rows: Rows,
    step: tokens::Frames,
    terms: Table,
    term_signs: Table,
    blocks: Table,
    pairs: Table,
    signs: Table,
}

impl Frames {
    pub(super) fn new(
        step: &tokens::Frames,
        device: &Device,
        sizes: &Sizes,
        constants: &mut Constants,
    ) -> Result<Self, Error> {
        let (map, blades) = (&step.map, step.geometry.blades());
        let terms = map.terms.iter();
        let places = terms
            .clone()
            .flat_map(|own| [own.entry, own.left, own.right]);
        let term_signs: Vec<f64> = terms.map(|own| own.sign).collect();
        let mut blocks = vec![0; 3 * blades];
        let mut pairs = Vec::with_capacity(2 * map.len());
        for own in &map.blocks {
            let all = own.blade..own.blade + own.size;
            for row in all.clone() {
                blocks[3 * row..][..3].copy_from_slice(&[own.blade, own.size, own.entry]);
                pairs.extend(all.clone().flat_map(|column| [row, column]));
            }
        }
        let mut table = |numbers: &mut dyn Iterator<Item = usize>| {
            let numbers: Vec<i64> = numbers.map(|at| at as i64).collect();
            constants.indices(&numbers)
        };
        let [terms, blocks, pairs] = [
            table(&mut places.into_iter())?,
            table(&mut blocks.into_iter())?,
            table(&mut pairs.into_iter())?,
        ];
        Ok(Self {
            rows: Rows::new(device, sizes.dtype)?,
            terms,
            blocks,
            pairs,
            term_signs: constants.numbers(sizes.dtype, &term_signs),
            signs: constants.numbers(sizes.dtype, &step.signs()),
            step: step.clone(),
        })
    }

    /// The frames of a call, whose entries are at an address.
    fn of(&self, site: &Site<'_>, given: Given, entries: CUdeviceptr) -> RowFrames {
        let (step, tables) = (&self.step, site.tables);
        let blades = step.geometry.blades();
        RowFrames {
            frames: given.other,
            entries,
            rows: site.sizes.rows(),
            frame_len: step.map.frame_len(),
            entry_count: step.map.len(),
            terms: self.terms.at(tables),
            term_signs: self.term_signs.at(tables),
            term_count: step.map.terms.len(),
            blocks: self.blocks.at(tables),
            pairs: self.pairs.at(tables),
            signs: self.signs.at(tables),
            blades,
            channels: step.channels.multivectors,
            width: step.channels.width_over(blades),
        }
    }

    /// The entries, and their gradient if that of frames is wanted.
    fn room(&self, sizes: &Sizes, to: Option<To>) -> Room<2> {
        let bytes = sizes.bytes(sizes.rows() * self.step.map.len());
        let is_wanted = to.is_some_and(|to| to.other.is_some());
        Room::new([bytes, if is_wanted { bytes } else { 0 }])
    }
}

impl Ready for Frames {
    fn forward_bytes(&self, sizes: &Sizes) -> usize {
        self.room(sizes, None).bytes()
    }

    fn backward_bytes(&self, sizes: &Sizes, to: To) -> usize {
        self.room(sizes, Some(to)).bytes()
    }

    unsafe fn forward(&self, site: &Site<'_>, given: Given, y: CUdeviceptr) -> Result<(), Error> {
        let [entries, _] = self.room(&site.sizes, None).at(given.workspace);
        let (of, target) = (self.of(site, given, entries), site.target());
        // SAFETY: the room has all entries, and the tables belong to the step; the caller promises the rest.
        unsafe {
            self.rows.outermorphism(target, &of)?;
            let to = (y, self.step.inverse);
            Ok(self.rows.multiply_frames(target, &of, given.x, to)?)
        }
    }

    unsafe fn backward(
        &self,
        site: &Site<'_>,
        given: Given,
        g: CUdeviceptr,
        to: To,
    ) -> Result<(), Error> {
        let [entries, of_entries] = self.room(&site.sizes, Some(to)).at(given.workspace);
        let (of, target) = (self.of(site, given, entries), site.target());
        // SAFETY: as in `forward`.
        unsafe {
            self.rows.outermorphism(target, &of)?;
            if let Some(to) = to.x {
                let to = (to, !self.step.inverse);
                self.rows.multiply_frames(target, &of, g, to)?;
            }
            let Some(to) = to.other else { return Ok(()) };
            let sides = match self.step.inverse {
                true => [given.x, g],
                false => [g, given.x],
            };
            self.rows.frame_products(target, &of, sides, of_entries)?;
            let rows = &self.rows;
            Ok(rows.outermorphism_gradient(target, &of, of_entries, to)?)
        }
    }
}
