//! Kernels of chains: programs of rows and products with matrices, one after another on a tile of rows.

use std::collections::HashMap;
use std::fmt::Write;

use flashcliff_program::ir::{Digest, Program};

use super::planned::Planned;
use super::{Functions, plan_of, vanishes_from};
use crate::Error;

/// A part of a chain, in order.
#[derive(Clone, Debug)]
pub enum ChainPart<'a> {
    /// Rows of a matrix are copied to shared memory.
    Copy,
    /// A program on rows of so many channels and scalar channels, with its tensors: inputs, numbers of rows, outputs, parameters.
    Program(&'a Program, [usize; 2], Vec<ChainSlot>),
    /// A product with a matrix: whether its result goes to shared memory, to memory, and is rounded to TF32 in shared memory.
    Product([bool; 3]),
}

/// Where a tensor of a program is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChainSlot {
    /// Whether it is in memory.
    pub memory: bool,
    /// The numbers from a row to the next in memory, and from a component to the next in both.
    pub strides: [usize; 2],
    /// The first number in shared memory, and the numbers from a row to the next.
    pub shared: Option<[usize; 2]>,
    /// Whether an output is rounded to TF32 on the way to shared memory, since products alone read it there.
    pub rounds: bool,
}

/// The text of a kernel, and the kernel in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainText {
    /// The text, which includes files of the skeleton by their paths below its folder.
    pub text: String,
    /// The function, as an expression of C++.
    pub expression: String,
}

/// The tensors of a program in the list of a call: inputs with numbers of rows, outputs, parameters.
pub fn tensors_in_chain(program: &Program) -> [usize; 3] {
    let rows = program.row_values.len();
    [
        program.inputs.len() + rows,
        program.outputs.len(),
        program.params.len(),
    ]
}

/// Whether a program can be a part of a chain: it computes outputs of lanes alone, and knows no sums of an earlier pass.
pub fn fits_in_chain(program: &Program) -> bool {
    program.sums.is_empty()
        && program.saved_row_sums == 0
        && program.totals.is_empty()
        && !program.outputs.is_empty()
}

/// A part begins when all threads have done the one before. Products wait by themselves.
const WAITS: &str = "    __syncthreads();\n";

/// Emits the kernel of a chain of programs that [fit](fits_in_chain), for tiles of 16 or 32 rows.
///
/// # Errors
/// A program that kernels have no room for.
pub fn chain(parts: &[ChainPart<'_>], rows: usize) -> Result<ChainText, Error> {
    let (mut stages, mut structs) = (Functions::default(), String::new());
    let mut known: HashMap<Digest, usize> = HashMap::new();
    let (mut body, mut addresses) = (String::new(), 0);
    let [mut programs, mut products, mut copies] = [0; 3];
    for part in parts {
        match part {
            ChainPart::Copy => {
                body.push_str(WAITS);
                let _ = writeln!(
                    body,
                    "    fc::copy_rows<kRows>(call.copies[{copies}], tile);"
                );
                copies += 1;
            }
            ChainPart::Product(goes) => {
                let [made, left, rounded] = goes;
                let _ = writeln!(
                    body,
                    "    fc::multiply_rows<kRows, {made}, {left}, {rounded}>(call.products[{products}], tile);"
                );
                products += 1;
            }
            ChainPart::Program(program, channels, slots) => {
                let program = program.without_names();
                let next = known.len();
                let number = *known.entry(program.digest()).or_insert(next);
                if number == next {
                    let plan = plan_of(None, &program)?;
                    let functions = stages.of("stages", &program, &plan);
                    let planned = Planned {
                        name: format!("p{number}"),
                        program: &program,
                        plan: &plan,
                        functions: &functions,
                        vanishes_from: vanishes_from(None, &program)?,
                    };
                    structs.push_str(&planned.text(&planned.walk()));
                }
                structs.push_str(&used(
                    &format!("u{programs}"),
                    number,
                    addresses,
                    (*channels, slots),
                ));
                body.push_str(WAITS);
                let _ = writeln!(
                    body,
                    "    fc::run_program<u{programs}, kRows, {programs}>(call, tile);"
                );
                addresses += slots.len();
                programs += 1;
            }
        }
    }
    let text = format!(
        "#include \"skeleton/chain.cuh\"\n\nnamespace program {{\n{}\n{structs}\
         struct chain {{\n  static constexpr int kRows = {rows};\n  \
         template <class C>\n  FC_INLINE static void run(const C &call, const fc::ChainTile &tile) {{\n{body}  }}\n}};\n\
         }}  // namespace program\n",
        stages.text(),
    );
    Ok(ChainText {
        text,
        expression: format!(
            "&fc::chain_kernel<program::chain, fc::ChainCall<{addresses}, {programs}, {products}, {copies}>>"
        ),
    })
}

/// The struct of a use of a program: where its tensors are.
fn used(
    name: &str,
    program: usize,
    first: usize,
    (channels, slots): ([usize; 2], &[ChainSlot]),
) -> String {
    let mut text = format!(
        "struct {name} {{\n  using P = p{program};\n  static constexpr int kFirst = {first};\n"
    );
    let mut list = |name: &str, numbers: Vec<i64>| {
        let numbers: Vec<String> = numbers.iter().map(i64::to_string).collect();
        let _ = writeln!(
            text,
            "  static __host__ __device__ constexpr int {name}(int at) {{\n    constexpr int of[] = {{{}}};\n    return of[at];\n  }}",
            numbers.join(", "),
        );
    };
    let of = |number: &dyn Fn(&ChainSlot) -> Option<usize>| -> Vec<i64> {
        let numbers = slots.iter().map(number);
        numbers
            .map(|own| own.map_or(-1, |own| own as i64))
            .collect()
    };
    list("channels", channels.map(|count| count as i64).to_vec());
    list("in_memory", of(&|slot| Some(usize::from(slot.memory))));
    list("row", of(&|slot| Some(slot.strides[0])));
    list("component", of(&|slot| Some(slot.strides[1])));
    list("shared", of(&|slot| Some(slot.shared?[0])));
    list("shared_row", of(&|slot| Some(slot.shared?[1])));
    list("rounds", of(&|slot| Some(usize::from(slot.rounds))));
    text.push_str("};\n");
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::program;
    use super::*;

    #[test]
    fn parts_follow_each_other_and_programs_are_emitted_once() {
        let norm = program("mv_layer_norm");
        assert!(fits_in_chain(&norm));
        let [inputs, outputs, params] = tensors_in_chain(&norm);
        let slot = ChainSlot {
            shared: Some([64, 40]),
            rounds: true,
            ..ChainSlot::default()
        };
        let use_of = || {
            let slots = vec![slot; inputs + outputs + params];
            ChainPart::Program(&norm, [16, 0], slots)
        };
        let parts = [
            ChainPart::Copy,
            use_of(),
            ChainPart::Product([true, false, true]),
            use_of(),
        ];
        let made = chain(&parts, 32).unwrap();
        let places = [
            "copy_rows<kRows>(call.copies[0], tile)",
            "run_program<u0, kRows, 0>(call, tile)",
            "multiply_rows<kRows, true, false, true>(call.products[0], tile)",
            "run_program<u1, kRows, 1>(call, tile)",
        ]
        .map(|part| made.text.find(part).expect(part));
        assert!(places.is_sorted());
        assert_eq!(made.text.matches("struct p0 ").count(), 1);
        assert!(!made.text.contains("struct p1 "));
        // All threads wait in front of each part; products do it by themselves.
        assert_eq!(made.text.matches(WAITS).count(), 3);
        assert!(made.text.contains("kFirst = 0;") && made.text.contains("kRows = 32;"));
        assert!(
            made.text
                .contains(&format!("kFirst = {};", inputs + outputs + params))
        );
        let addresses = 2 * (inputs + outputs + params);
        assert!(
            made.expression
                .ends_with(&format!("fc::ChainCall<{addresses}, 2, 1, 1>>"))
        );
    }

    #[test]
    fn programs_with_sums_over_the_batch_do_not_fit() {
        let adjoint = flashcliff_program::ir::differentiate(&program("sgp"));
        assert!(!fits_in_chain(&adjoint));
    }
}
