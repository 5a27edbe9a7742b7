//! Kernels of messages: a program for each row of a relation, whose tensors are of rows, or of what rows belong to.

use std::fmt::Write;

use flashcliff_program::ir::Program;

use super::planned::Planned;
use super::single::{Kernel, Single, emitted};
use crate::Error;

/// The most relations of a kernel.
pub const MOST_RELATIONS: usize = 2;

/// The components of the tensors of many channels of a thread, of all its channels together, up to which it takes more channels.
const MOST_TOGETHER: usize = 100;

/// The items that the tensors of a program are of: 0 stands for rows, 1 and 2 for the targets of the first and of the second relation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ends {
    /// The items of each lane tensor that is read.
    pub inputs: Vec<usize>,
    /// Whether each lane tensor that is read has one channel, which is the same for all.
    pub ones: Vec<bool>,
    /// The items of all results: sums over the rows of each target, unless they are of rows.
    pub to: usize,
    /// Whether each result is summed over the channels.
    pub sums: Vec<bool>,
}

impl Ends {
    /// Whether there is a kernel of a program: it has channels of one kind, and no sums over a row or over the batch.
    pub fn fit(&self, program: &Program) -> bool {
        let has_rows = !program.row_sums.is_empty() || program.saved_row_sums > 0;
        let has_others = program.has_scalars() || program.has_row_tensors();
        let ends = self.inputs.iter().chain([&self.to]);
        !has_rows
            && !has_others
            && program.sums.is_empty()
            && !program.outputs.is_empty()
            && self.inputs.len() == program.inputs.len()
            && self.ones.len() == program.inputs.len()
            && self.sums.len() == program.outputs.len()
            && ends.copied().all(|end| end <= MOST_RELATIONS)
    }

    /// The text of the items of the tensors, within the struct of the program.
    fn text(&self) -> String {
        let list = |text: &mut String, kind: &str, name: &str, numbers: Vec<usize>| {
            let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
            let _ = writeln!(
                text,
                "    static __host__ __device__ constexpr {kind} {name}(int at) {{\n      constexpr int of[] = {{{}, 0}};\n      return of[at];\n    }}",
                numbers.join(", "),
            );
        };
        let flags = |flags: &[bool]| flags.iter().map(|&own| usize::from(own)).collect();
        let reads = (0..=MOST_RELATIONS).map(|end| usize::from(self.inputs.contains(&end)));
        let mut text = "  struct Ends {\n".to_owned();
        let _ = writeln!(text, "    static constexpr int kTo = {};", self.to);
        list(&mut text, "int", "from", self.inputs.clone());
        list(&mut text, "bool", "is_one", flags(&self.ones));
        list(&mut text, "bool", "is_sum", flags(&self.sums));
        list(&mut text, "bool", "reads", reads.collect());
        text.push_str("  };\n");
        text
    }
}

/// The channels that a thread of a kernel of messages has, for elements of so many bytes. Channels, strides and
/// addresses are multiples of `whole` elements.
pub fn channels_of_message(program: &Program, ends: &Ends, whole: usize, bytes: usize) -> usize {
    let inputs = program.inputs.iter().map(|input| input.components.len());
    let outputs = program.outputs.iter().map(|output| output.values.len());
    let inputs = inputs.zip(&ends.ones).filter(|(_, one)| !**one);
    let outputs = outputs.zip(&ends.sums).filter(|(_, sum)| !**sum);
    let components: usize = inputs.chain(outputs).map(|(count, _)| count).sum();
    let all: &[usize] = if bytes == 8 { &[1] } else { &[1, 2, 4] };
    let fits =
        |lanes: &&usize| whole.is_multiple_of(**lanes) && **lanes * components <= MOST_TOGETHER;
    all.iter().filter(fits).copied().max().unwrap_or(1)
}

/// Emits the kernel of messages of a program that [fits](Ends::fit), with so many channels a thread and bytes an element.
///
/// # Errors
/// A program that kernels have no room for.
pub fn messages(
    program: &Program,
    ends: &Ends,
    lanes: usize,
    bytes: usize,
) -> Result<Single, Error> {
    let kernel = |planned: &Planned<'_>, key: &str| {
        let expression = format!("&fc::messages_kernel<{key}, {lanes}, {bytes}>");
        let kernel = Kernel {
            variant: 0,
            expression,
        };
        (
            "messages",
            ends.text() + &planned.body(),
            vec![kernel],
            None,
        )
    };
    emitted(program, bytes == 8, |planned, key, _| kernel(planned, key))
}

#[cfg(test)]
mod tests {
    use cayley::Signature;
    use flashcliff_program::ir::differentiate;

    use super::super::tests::{program, program_in};
    use super::*;

    fn ends() -> Ends {
        Ends {
            inputs: vec![2, 0],
            ones: vec![false, true],
            to: 1,
            sums: vec![false],
        }
    }

    #[test]
    fn programs_of_rows_alone_have_kernels() {
        let product = program("geometric_product");
        assert!(ends().fit(&product));
        assert!(!ends().fit(&program("mv_layer_norm")));
        let adjoint = differentiate(&program("sgp"));
        let of_adjoint = Ends {
            inputs: vec![0; adjoint.inputs.len()],
            ones: vec![false; adjoint.inputs.len()],
            sums: vec![false; adjoint.outputs.len()],
            to: 0,
        };
        // The gradient of weights is a sum over the batch.
        assert!(!of_adjoint.fit(&adjoint));
        assert!(!Ends { to: 3, ..ends() }.fit(&product));
        assert!(
            !Ends {
                ones: vec![],
                ..ends()
            }
            .fit(&product)
        );
    }

    #[test]
    fn texts_say_the_items_of_tensors() {
        let made = messages(&program("geometric_product"), &ends(), 2, 4).unwrap();
        let kernel = &made.kernels[0].expression;
        assert_eq!(kernel, "&fc::messages_kernel<program::single, float, 2, 4>");
        assert!(made.text.contains("kTo = 1;"));
        assert!(made.text.contains("constexpr int of[] = {2, 0, 0};"));
        assert!(made.text.contains("#include \"skeleton/messages.cuh\""));
    }

    #[test]
    fn threads_have_as_many_channels_as_registers_have_room_for() {
        let product = program("geometric_product");
        assert_eq!(channels_of_message(&product, &ends(), 4, 4), 4);
        assert_eq!(channels_of_message(&product, &ends(), 2, 4), 2);
        assert_eq!(channels_of_message(&product, &ends(), 4, 8), 1);
        let wide = program_in(Signature::of(4, 1, 0), "geometric_product");
        // A factor of one channel takes the room of one.
        assert_eq!(channels_of_message(&wide, &ends(), 4, 4), 1);
    }
}
