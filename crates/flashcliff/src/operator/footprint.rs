//! The memory of a pass, and the largest batch that fits.

use super::{Dims, Operator, Pass};
use crate::{Dtype, Error, TensorSpec, memory, sizes};

/// The number of bytes from which on buffers are not counted: they could not be addressed, and the tensors alone have no room.
const ENDLESS: u128 = 1 << 56;

/// The bytes that a pass works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Footprint {
    /// The tensors that the pass reads: inputs; in a backward pass the output, its gradient and the saved values too.
    pub given: u128,
    /// The tensors that the pass writes: the output, or the gradients.
    pub made: u128,
    /// The values that a forward pass saves.
    pub saved: u128,
    /// The workspace, on the CPU with the threads that are in force.
    pub workspace: u128,
}

impl Footprint {
    /// The bytes that are held at once.
    pub fn peak(&self) -> u128 {
        self.given + self.taken()
    }

    /// The bytes that the pass takes besides the tensors that it is given.
    pub fn taken(&self) -> u128 {
        self.made + self.saved + self.workspace
    }

    /// The parts of [`Self::taken`] in words.
    fn parts(&self, pass: Pass) -> String {
        let made = match pass {
            Pass::Forward => "output",
            Pass::Backward => "gradients",
        };
        let parts = [
            (made, self.made),
            ("saved", self.saved),
            ("workspace", self.workspace),
        ];
        let parts = parts.iter().filter(|(_, bytes)| *bytes > 0);
        let parts: Vec<String> = parts
            .map(|(name, bytes)| format!("{name} {}", memory::in_words(*bytes)))
            .collect();
        parts.join(", ")
    }
}

/// A pass whose bytes are counted.
#[derive(Clone, Copy)]
pub(crate) struct Counted<'a> {
    pub(crate) pass: Pass,
    /// The gradients that a backward pass makes, an item for each input; all if absent.
    pub(crate) wanted: Option<&'a [bool]>,
    /// The bytes of an element of a tensor with a batch axis.
    pub(crate) lanes: usize,
    /// The bytes of an element of a parameter.
    pub(crate) parameters: usize,
}

impl Operator {
    /// The bytes of a pass on the CPU with all gradients, for sizes however large.
    pub fn footprint(&self, dims: &Dims, dtype: Dtype, pass: Pass) -> Footprint {
        self.footprint_on_cpu(dims, dtype, pass, None)
    }

    fn footprint_on_cpu(
        &self,
        dims: &Dims,
        dtype: Dtype,
        pass: Pass,
        wanted: Option<&[bool]>,
    ) -> Footprint {
        let counted = Counted {
            pass,
            wanted,
            lanes: dtype.bytes(),
            parameters: dtype.bytes(),
        };
        let bytes = |elements: usize| sizes::product([elements, dtype.bytes()]);
        let saved = || bytes(self.saved_len(dims));
        let workspace = || {
            let elements = match dtype {
                Dtype::F64 => self.workspace_len::<f64>(dims, pass),
                _ => self.workspace_len::<f32>(dims, pass),
            };
            bytes(elements)
        };
        self.count(dims, counted, saved, workspace)
    }

    /// The bytes of a pass. The bytes of buffers are asked for only if tensors can be addressed.
    pub(crate) fn count(
        &self,
        dims: &Dims,
        counted: Counted<'_>,
        saved: impl FnOnce() -> usize,
        workspace: impl FnOnce() -> usize,
    ) -> Footprint {
        let bytes = |spec: &TensorSpec| {
            let sizes = spec.sizes(dims).map(|size| size as u128);
            let width = match spec.is_parameter() {
                true => counted.parameters,
                false => counted.lanes,
            };
            let bytes = sizes.fold(width as u128, u128::saturating_mul);
            bytes.min(u128::MAX >> 8)
        };
        let inputs: u128 = self.inputs().iter().map(bytes).sum();
        let output: u128 = self.outputs().iter().map(bytes).sum();
        let (saved, workspace) = match inputs + output < ENDLESS {
            true => (saved() as u128, workspace() as u128),
            false => (0, 0),
        };
        match counted.pass {
            Pass::Forward => Footprint {
                given: inputs,
                made: output,
                saved,
                workspace,
            },
            Pass::Backward => {
                let is_wanted = |at: usize| {
                    counted
                        .wanted
                        .is_none_or(|wanted| wanted.get(at) == Some(&true))
                };
                let specs = self.inputs().iter().enumerate();
                let wanted = specs.filter(|(at, _)| is_wanted(*at));
                Footprint {
                    given: inputs + 2 * output + saved,
                    made: wanted.map(|(_, spec)| bytes(spec)).sum(),
                    saved: 0,
                    workspace,
                }
            }
        }
    }

    /// The largest batch whose pass needs at most so many bytes; 0 if none does. All else is as in `dims`.
    pub fn largest_batch(
        &self,
        dims: &Dims,
        available: u128,
        bytes: impl Fn(&Dims) -> u128,
    ) -> usize {
        let fits = |batch: usize| bytes(&Dims { batch, ..*dims }) <= available;
        // The bytes grow with the batch, but for the padding of buffers, which is too small to matter.
        let (mut low, mut high) = (0, 1);
        while fits(high) {
            low = high;
            match high.checked_mul(2).filter(|&next| next < 1 << 40) {
                Some(next) => high = next,
                None => return low,
            }
        }
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            match fits(middle) {
                true => low = middle,
                false => high = middle,
            }
        }
        low
    }

    /// Checks that there is room for the tensors and the workspace that a pass on the CPU makes, with all gradients.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with the largest batch that fits.
    pub fn check_room(&self, dims: &Dims, dtype: Dtype, pass: Pass) -> Result<(), Error> {
        self.check_room_on_cpu(dims, dtype, pass, None)
    }

    /// Checks that there is room for those gradients that are wanted, and the workspace of a backward pass on the CPU. `wanted` has an item
    /// for each input.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with the largest batch that fits.
    pub fn check_room_for(&self, dims: &Dims, dtype: Dtype, wanted: &[bool]) -> Result<(), Error> {
        self.check_room_on_cpu(dims, dtype, Pass::Backward, Some(wanted))
    }

    fn check_room_on_cpu(
        &self,
        dims: &Dims,
        dtype: Dtype,
        pass: Pass,
        wanted: Option<&[bool]>,
    ) -> Result<(), Error> {
        let footprint = |dims: &Dims| self.footprint_on_cpu(dims, dtype, pass, wanted);
        let found = footprint(dims);
        if found.taken() < memory::THRESHOLD {
            return Ok(());
        }
        let what = self.call_in_words(dims, dtype, pass, &found);
        memory::check(&what, found.taken(), |available| match available {
            None => "raise the limit, or make the batch smaller".to_owned(),
            Some(available) => self.remedy(dims, available, footprint),
        })
    }

    /// The error of a pass whose memory was refused while so many bytes were available.
    #[cfg(feature = "cuda")]
    pub(crate) fn no_room(
        &self,
        dims: &Dims,
        dtype: Dtype,
        pass: Pass,
        available: Option<u128>,
        footprint: impl Fn(&Dims) -> Footprint,
    ) -> Error {
        let found = footprint(dims);
        let remedy = match available {
            None => "make the batch smaller".to_owned(),
            Some(available) if available >= found.taken() => {
                "what is free lies in pieces: free cached memory, or make the batch smaller"
                    .to_owned()
            }
            Some(available) => self.remedy(dims, available, footprint),
        };
        let what = self.call_in_words(dims, dtype, pass, &found);
        memory::no_room(what, found.taken(), available, remedy)
    }

    fn remedy(
        &self,
        dims: &Dims,
        available: u128,
        footprint: impl Fn(&Dims) -> Footprint,
    ) -> String {
        match self.largest_batch(dims, available, |dims| footprint(dims).taken()) {
            0 => "no batch fits with so many channels".to_owned(),
            batch => format!("the largest batch that fits is {batch}"),
        }
    }

    fn call_in_words(
        &self,
        dims: &Dims,
        dtype: Dtype,
        pass: Pass,
        footprint: &Footprint,
    ) -> String {
        let Dims {
            batch,
            in_channels,
            out_channels,
            scalar_channels,
        } = dims;
        let beside = match scalar_channels {
            0 => String::new(),
            scalars => format!(", {scalars} scalar channels"),
        };
        format!(
            "{}: the {pass} pass with a batch of {batch}, {in_channels} channels in and {out_channels} out{beside} in {dtype} ({})",
            self.name(),
            footprint.parts(pass)
        )
    }
}
