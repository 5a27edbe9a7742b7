//! The fused fully connected geometric product. Its programs stand around matrix products, in `spec`.

use cayley::ProductKind;
use flashcliff_operators::options::{BLOCK_BYTES, PRODUCT_OPTIONS};
use flashcliff_operators::row::{input, weight};
use flashcliff_operators::{Gradient, Law, Operator as Row, Options, Section};

use super::Entry;
use crate::reference::{Call, Number};

pub(super) const ENTRY: Entry = Entry {
    row: Row {
        name: "fcgp_norm",
        section: Section::Fused,
        title: "The fused fully connected geometric product: {sgp_norm} from all channels to all channels.",
        formula: "o[m] = norm(sum over n and paths p of w[p, n, m] <<x'[n]>_a <y'[n]>_b>_p)",
        details: "There is one matrix product for each path, whose left operand is formed from `x` and `y` block \
                  by block. Saved for the backward pass: one sum per output grade and batch element.\n\n\
                  The range of the norm is that of {sgp_norm}, here of sums over `n`.",
        inputs: &[
            input("x", "[blades of left, batch, in]"),
            input("y", "[blades of right, batch, in]"),
            weight("[paths, in, out]"),
        ],
        output: "[reachable blades, batch, out]",
        options: Options::Set(&PRODUCT_OPTIONS),
        python_settings: &[&BLOCK_BYTES],
        rust_note: "On CUDA the path products of a block of rows, and their gradients, are written to the workspace in the \
                    type of the tensors, for cuBLASLt to multiply. A block takes 256 MiB at the most, or what a tuning \
                    table or `cuda::Operator::with_block_bytes` says, or as much as a single row needs.",
        errors: "[`Error::Algebra`] for grades the algebra does not have, [`Error::InvalidOption`].",
        source: "flash-clifford's `fused_gelu_fcgp_norm`; CGENN's fully connected product (arXiv 2305.11141, \
                 section 4).",
        gradient: Gradient {
            reads_output: true,
            ..Gradient::SAVES
        },
        autocast: true,
    },
    symmetry: &[Law::VERSORS, Law::RMS],
    lanes: None,
};

pub(super) fn reference<N: Number>(call: &Call<'_, N>) -> Vec<N> {
    let (left, right) = (call.left, call.right);
    let (batch, from, to) = (call.batch, call.channels, call.outputs);
    let (x, y) = (
        call.gated(left, call.input("x")),
        call.gated(right, call.input("y")),
    );
    let w = call.input("w");
    let table = call.basis.table(ProductKind::Geometric, left, right);
    let mut out = vec![N::constant(0.0); table.outputs.len() * batch * to];
    for b in 0..batch {
        // The products of a term do not depend on the output channel.
        let products: Vec<Vec<N>> = table
            .terms
            .iter()
            .map(|term| {
                let lane = |k: usize, n: usize| (k * batch + b) * from + n;
                let product = |n| x[lane(term.left, n)].mul(y[lane(term.right, n)]);
                (0..from).map(|n| product(n).signed(term.sign)).collect()
            })
            .collect();
        for m in 0..to {
            let mut sums = vec![Vec::new(); table.outputs.len()];
            for (term, products) in table.terms.iter().zip(&products) {
                for (n, product) in products.iter().enumerate() {
                    let w = w[(term.path * from + n) * to + m];
                    sums[term.output].push(product.mul(w));
                }
            }
            for (k, sum) in sums.iter().enumerate() {
                out[(k * batch + b) * to + m] = N::sum(sum);
            }
        }
    }
    call.normalized(left, right, out)
}
