//! Linear layers as one matrix product, which may leave out blocks of zeros.

use flashcliff::Device;
use flashcliff::cuda::cudarc::driver::sys::CUdeviceptr;
use flashcliff::cuda::items::Items;
use flashcliff::cuda::matrix::{MatrixForm, MatrixPlaces, MatrixProduct};

use super::blocks::Blocks;
use super::chain;
use super::constants::{Constants, Table};
use super::matrix::{self, Layout};
use super::sums::{self, Sums, Ways};
use super::tall::Tall;
use super::{Given, Ready, Site, Sizes, To, not_served};
use crate::cuda::room::Room;
use crate::{Error, tokens};

/// The elements that a step keeps: the matrix with its bias, and the weights of a chain if it may be in one.
pub(super) fn kept(step: &tokens::Linear, sizes: &Sizes) -> Result<usize, Error> {
    let layout = Layout::of(step, sizes.dtype);
    if !chain::may_have(step, sizes) {
        return Ok(layout.len);
    }
    let table = table_of(step, layout, &matrix::sources(step, layout)?);
    Ok(layout.packed() + table.weights.len())
}

/// Whether the tokens of a step may have 16 bits.
pub(super) fn takes_16_bits(step: &tokens::Linear, sizes: &Sizes) -> Result<bool, Error> {
    let layout = Layout::of(step, sizes.dtype);
    let sources = matrix::sources(step, layout)?;
    let is_filled = |at: usize| is_filled(sources[at]);
    Ok(Blocks::take_16_bits(layout, is_filled, sizes))
}

/// Whether the matrix has an element: where there is a constant 0, it has none.
fn is_filled((parameter, factor): (Option<usize>, f64)) -> bool {
    parameter.is_some() || factor != 0.0
}

fn table_of(
    step: &tokens::Linear,
    layout: Layout,
    sources: &[(Option<usize>, f64)],
) -> chain::Table {
    let sides = [step.input, step.output()];
    chain::Table::of(layout, sources, step.geometry.blades(), sides)
}

#[derive(Debug)]
pub(super) struct Linear {
    layout: Layout,
    /// For each element of the matrix its parameter, or the number 1; for each parameter the elements of the matrix's gradient.
    ways: Ways,
    one: Table,
    /// Whether the matrix is there when the step runs.
    is_made: bool,
    /// The columns with a bias.
    biased: Vec<(usize, usize)>,
    products: Products,
    /// The blocks of the matrix, where products leave out the others.
    blocks: Option<Blocks>,
    /// The table of columns of the product in a chain.
    columns: Option<chain::Columns>,
}

/// The products for the result, the gradient of the input, and that of the matrix.
#[derive(Clone, Copy, Debug)]
struct Products {
    output: MatrixProduct,
    input: MatrixProduct,
    matrix: Tall,
}

impl Linear {
    pub(super) fn new(
        step: &tokens::Linear,
        device: &Device,
        sizes: &Sizes,
        (parts, is_chained): (Option<&[usize]>, bool),
        constants: &mut Constants,
    ) -> Result<Self, Error> {
        let layout = Layout::of(step, sizes.dtype);
        let sources = matrix::sources(step, layout)?;
        let most = 1 << Items::PLACE_BITS;
        let count: usize = step.lens().iter().sum();
        if count > most {
            let expected =
                format!("at most {most} parameters of maps that share an input, got {count}");
            return Err(not_served("equivariant_linear", &expected));
        }
        let places = sums::places(parts.unwrap_or(&[count]));
        let blocks = Blocks::new(layout, |at| is_filled(sources[at]), sizes, constants)?;
        let of_chain = is_chained.then(|| table_of(step, layout, &sources));
        // Products that leave out zeros read no element outside of blocks, so none is written.
        let read = match &blocks {
            Some(blocks) if blocks.makes_rows() && parts.is_some() => Some(blocks.elements()),
            _ if is_chained => Some((0..layout.len).collect()),
            _ => None,
        };
        // The number 1 is in the tensor after all parameters.
        let term = |at: usize| {
            let (source, factor) = sources[at];
            (places[source.unwrap_or(count)], factor)
        };
        let matrix = match &read {
            Some(read) => {
                let packed = of_chain.iter().flat_map(|own| &own.weights);
                let packed = packed.map(|place| place.map_or((0, 0.0), term));
                let terms: Vec<(usize, f64)> =
                    read.iter().map(|&at| term(at)).chain(packed).collect();
                let rounded = layout.packed()..layout.packed() + terms.len() - read.len();
                let own = Sums::of(terms.iter().copied(), [terms.len(), 1], sizes, constants)?;
                own.at_places(read, rounded, constants)?
            }
            None => Sums::of((0..layout.len).map(term), [layout.len, 1], sizes, constants)?,
        };
        let of_parameters = matrix::places(step, layout)?;
        let ways = Ways {
            matrix,
            gradients: Sums::new(&of_parameters, sizes, constants)?,
        };
        let Layout {
            inputs, outputs, ..
        } = layout;
        let (rows, product) = (sizes.rows(), |form, of| sizes.product(form, of));
        let products = Products {
            output: product(MatrixForm::Plain, [rows, outputs, inputs]),
            input: product(MatrixForm::RightTransposed, [rows, inputs, outputs]),
            matrix: Tall::new(sizes, [inputs, outputs]),
        };
        // Products that leave out zeros are no products of the library.
        if !blocks.as_ref().is_some_and(Blocks::makes_rows) {
            products.output.prepare(device)?;
            products.input.prepare(device)?;
        }
        if blocks.is_none() {
            for product in products.matrix.products() {
                product.prepare(device)?;
            }
        }
        let columns = of_chain.map(|own| {
            let items = constants.indices(&own.numbers)?;
            Ok::<_, Error>(chain::Columns {
                items,
                warps: own.warps,
            })
        });
        Ok(Self {
            columns: columns.transpose()?,
            blocks,
            layout,
            ways,
            one: constants.numbers(sizes.dtype, &[1.0]),
            is_made: parts.is_some(),
            biased: matrix::biased(step),
            products,
        })
    }

    /// The matrix of gradients of the result.
    fn gradient(&self, sizes: &Sizes) -> [usize; 2] {
        [sizes.rows(), self.layout.outputs]
    }

    /// The gradient of the matrix and of the bias, unless it is a value of the plan; partial sums of the bias, and
    /// the memory of the product.
    fn room(&self, sizes: &Sizes, to: To) -> Room<3> {
        let own = match to.of_matrix {
            true => 0,
            false => sizes.bytes(self.layout.len),
        };
        Room::new(match &self.blocks {
            Some(blocks) => [own, 0, blocks.bytes(sizes)],
            None => [
                own,
                sizes.partial_bytes(self.gradient(sizes), &self.biased),
                self.products.matrix.bytes(sizes),
            ],
        })
    }

    /// The blocks, where products that make rows leave out the others.
    fn of_rows(&self) -> Option<&Blocks> {
        self.blocks.as_ref().filter(|own| own.makes_rows())
    }

    /// Gathers the matrix and the bias.
    ///
    /// # Safety
    /// The contract of [`Ready::forward`] holds.
    unsafe fn gather(&self, site: &Site<'_>, given: Given) -> Result<(), Error> {
        let pack = self.ways.matrix.pack(site, 0, given.kept);
        let tensors = [given.parameters, self.one.at(site.tables)];
        // SAFETY: each place is the place of a parameter or of the number 1, as the table was made; the caller promises the rest.
        Ok(unsafe { Items::pack_tensors(site.target(), pack, &tensors) }?)
    }

    /// # Safety
    /// The contract of [`Ready::backward`] holds.
    unsafe fn parameter_gradients(
        &self,
        site: &Site<'_>,
        given: Given,
        g: CUdeviceptr,
        to: To,
    ) -> Result<(), Error> {
        let Some(parameters) = to.parameters else {
            return Ok(());
        };
        let sizes = &site.sizes;
        let [own, partials, memory] = self.room(sizes, to).at(given.workspace);
        let of_matrix = if to.of_matrix { parameters } else { own };
        let of_bias = sizes.after(of_matrix, self.layout.bias);
        let (product, gradient) = (self.products.matrix, self.gradient(sizes));
        // SAFETY: the room has the elements of all; the caller promises the rest.
        unsafe {
            match &self.blocks {
                Some(blocks) => blocks.gradient(site, [given.x, g, of_matrix, memory])?,
                None => {
                    product.run(site, [given.x, g, of_matrix, memory])?;
                    site.column_sums(gradient, &self.biased, [g, partials, of_bias])?;
                }
            }
            match to.of_matrix {
                true => Ok(()),
                false => self.ways.gradients.write(site, of_matrix, parameters),
            }
        }
    }
}

impl Ready for Linear {
    fn ways(&self) -> Option<Ways> {
        Some(self.ways)
    }

    fn columns(&self) -> Option<chain::Columns> {
        self.columns
    }

    fn forward_bytes(&self, _: &Sizes) -> usize {
        match self.of_rows() {
            Some(_) => 0,
            None => self.products.output.workspace_bytes(),
        }
    }

    fn backward_bytes(&self, sizes: &Sizes, to: To) -> usize {
        let of_input = to.x.map(|_| match self.of_rows() {
            Some(_) => 0,
            None => self.products.input.workspace_bytes(),
        });
        let of_parameters = to.parameters.map(|_| self.room(sizes, to).bytes());
        of_input.max(of_parameters).unwrap_or(0)
    }

    unsafe fn forward(&self, site: &Site<'_>, given: Given, y: CUdeviceptr) -> Result<(), Error> {
        let places = MatrixPlaces {
            left: given.x,
            right: given.kept,
            to: y,
            bias: site.sizes.after(given.kept, self.layout.bias),
            workspace: given.workspace,
        };
        // SAFETY: what is kept has the matrix and the bias, which is aligned; the caller promises the rest.
        unsafe {
            if !self.is_made {
                self.gather(site, given)?;
            }
            match self.of_rows() {
                Some(blocks) => blocks.output(site, [given.x, given.kept, y]),
                None => Ok(self.products.output.run(site.target(), places)?),
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
        if let Some(to) = to.x {
            // SAFETY: what is kept has the matrix; the caller promises the rest.
            unsafe {
                match self.of_rows() {
                    Some(blocks) => blocks.input(site, [g, given.kept, to])?,
                    None => {
                        let places = [g, given.kept, to, given.workspace];
                        site.multiply(self.products.input, places)?;
                    }
                }
            }
        }
        // SAFETY: the caller promises it.
        unsafe { self.parameter_gradients(site, given, g, to) }
    }
}
