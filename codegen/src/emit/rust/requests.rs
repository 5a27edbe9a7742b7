//! The programs of users, compiled in their crates.

use std::collections::BTreeSet;

use proc_macro2::TokenStream;
use quote::quote;

use super::collection::{Collection, Named, Origin};
use super::text;
use crate::Error;
use flashcliff_program::ir::{Gate, Program, differentiate, gradient, resolved};
use flashcliff_program::spec::{first_derivatives, second_derivatives};

/// A program that a user wants compiled, with what its backward pass runs.
#[derive(Clone, Debug)]
pub struct Request {
    program: Program,
    backward: Backward,
    /// The gates for which there are derivatives of second order.
    gates: Vec<Gate>,
}

/// What computes gradients.
#[derive(Clone, Copy, Debug)]
enum Backward {
    /// The adjoint, which reads what the forward pass saved.
    Adjoint,
    /// The gradient as an operator, which saves nothing, for a gate.
    Gradient(Gate),
}

impl Request {
    /// A program and its adjoint, which `Operator::backward` runs.
    pub fn of(program: Program) -> Self {
        Self {
            program,
            backward: Backward::Adjoint,
            gates: Vec::new(),
        }
    }

    /// A program and its gradient as an operator, `Operator::gradient`, for operators with a gate. Programs that call
    /// no gate have one gradient for all gates. Without row sums it is the adjoint, too.
    pub fn and_gradient(program: Program, gate: Gate) -> Self {
        Self {
            backward: Backward::Gradient(gate),
            ..Self::of(program)
        }
    }

    /// The same with what second derivatives run, for operators with a gate: the gradient as an operator, the part of it that belongs to
    /// multivectors, and the gradients of both. A program that calls no gate needs one call, with any gate; one that calls it needs a call
    /// for each gate that its operators have.
    #[must_use]
    pub fn with_second_order(mut self, gate: Gate) -> Self {
        self.gates.push(gate);
        self
    }

    /// The programs that are compiled, and what each is to the first.
    fn programs(self) -> Result<Vec<(&'static str, Program)>, Error> {
        self.program.check_operator().map_err(Error::Refused)?;
        let backward = match self.backward {
            Backward::Adjoint => ("ADJOINT", differentiate(&self.program)),
            Backward::Gradient(gate) => ("GRADIENT", resolved(gate, gradient(&self.program))),
        };
        let mut programs = vec![("PROGRAM", self.program.clone()), backward];
        for gate in self.gates {
            let first = first_derivatives(&self.program, gate).into_iter();
            programs.extend(first.map(|program| ("GRADIENT", program)));
            let second = second_derivatives(&self.program, gate).into_iter();
            programs.extend(second.map(|program| ("SECOND", program)));
        }
        Ok(programs)
    }
}

/// The kernels of some programs as text to include in a crate that depends on `flashcliff`: a module, and the function `register`, by which
/// the library finds them. Equal programs are compiled once.
///
/// # Errors
/// A program that is not an operator, or whose derivatives kernels have no room for.
pub fn requested(requests: impl IntoIterator<Item = Request>) -> Result<String, Error> {
    let mut collection = Collection::new();
    let mut known = BTreeSet::new();
    for (index, request) in requests.into_iter().enumerate() {
        let origin = Origin {
            module: format!("program_{index}"),
            place: "a program of one's own".to_owned(),
            remark: String::new(),
        };
        let mut programs = request.programs()?;
        programs.retain(|(_, program)| known.insert(program.digest()));
        let programs = programs.into_iter().map(named);
        let added = collection.add(&origin, programs);
        added.map_err(|excess| Error::SecondOrder { excess })?;
    }
    Ok(text::print(file(&collection)))
}

/// A program with names that are identifiers. Users may choose other names; messages keep the name that the user chose.
fn named((what, program): (&'static str, Program)) -> Named {
    Named {
        what,
        label: program.name.clone(),
        program: program.without_names(),
    }
}

/// The items of the text.
fn file(collection: &Collection) -> TokenStream {
    let root = quote!(::flashcliff::ahead);
    let version = env!("CARGO_PKG_VERSION");
    let (modules, list) = (collection.tokens(&root), collection.list());
    quote! {
        const _: () = #root::check_version(#version);

        /// Registers the kernels of this file for the whole process: `Operator::of` finds them from now on.
        #[allow(unreachable_pub, unsafe_code, clippy::undocumented_unsafe_blocks, reason = "the crate chooses who calls it; tokens have no comments")]
        pub fn register() {
            // SAFETY: the generator wrote the kernels.
            unsafe { #root::register(kernels::PROGRAMS) }
        }

        #[allow(
            missing_docs, unreachable_pub, unsafe_code, unused, clippy::all, clippy::pedantic, clippy::nursery, clippy::restriction,
            reason = "nobody reads generated code"
        )]
        mod kernels {
            #modules

            pub(super) static PROGRAMS: &[&#root::Program] = #list;
        }
    }
}

#[cfg(test)]
mod tests {
    use cayley::{Algebra, GradeSet, ProductKind, Signature};
    use flashcliff_program::ir::Function;
    use flashcliff_program::plan::{Limits, Refusal};
    use flashcliff_program::spec::Multivector;

    use super::*;

    /// The product of two multivectors of the plane, gated by the first.
    fn gated_product() -> Program {
        let algebra = Algebra::new(Signature::of(2, 0, 0));
        let mut p = Program::new("gated_product", "o = gate(x_0) x y");
        let x = Multivector::input(&mut p, &algebra, "x", GradeSet::full(2));
        let y = Multivector::input(&mut p, &algebra, "y", GradeSet::full(2));
        let product = x.product(&mut p.graph, &algebra, ProductKind::Geometric, &y);
        let gate = x.gate_factor(&mut p.graph, &algebra);
        let o = product.map(&algebra, |_, component| p.graph.mul(gate, component));
        o.output(&mut p, &algebra);
        p
    }

    /// The sum of some inputs.
    fn sum_of(inputs: usize) -> Program {
        let mut p = Program::new("long_sum", "o = x0 + x1 + ...");
        let one = || vec!["1".to_owned()];
        let mut total = p.input("x0", one())[0];
        for index in 1..inputs {
            let x = p.input(&format!("x{index}"), one())[0];
            total = p.graph.add(total, x);
        }
        p.output("o", one(), vec![total]);
        p
    }

    fn has(text: &str, program: &Program) -> bool {
        text.contains(&format!("0x{}", program.digest()))
    }

    #[test]
    fn a_text_has_what_is_asked_for() -> Result<(), Error> {
        let program = gated_product();
        let plain = requested([Request::of(program.clone())])?;
        assert!(has(&plain, &program) && has(&plain, &differentiate(&program)));
        let second = |gate| second_derivatives(&program, gate);
        assert!(!second(Gate::Silu).iter().any(|second| has(&plain, second)));

        let request = Request::of(program.clone()).with_second_order(Gate::Silu);
        let text = requested([request])?;
        let all = first_derivatives(&program, Gate::Silu);
        let mut all = all.into_iter().chain(second(Gate::Silu));
        assert!(all.all(|program| has(&text, &program)));
        assert!(!second(Gate::Gelu).iter().any(|second| has(&text, second)));
        Ok(())
    }

    #[test]
    fn a_gradient_stands_in_place_of_the_adjoint() -> Result<(), Error> {
        let mut program = gated_product();
        let first = program.outputs[0].values[0];
        let sum = program.row_sum(first);
        program.outputs[0].values[0] = program.graph.mul(first, sum);
        let text = requested([Request::and_gradient(program.clone(), Gate::Silu)])?;
        let gradient = resolved(Gate::Silu, gradient(&program));
        assert!(has(&text, &program) && has(&text, &gradient));
        // The adjoint reads the sum that the forward pass saved.
        assert!(!has(&text, &differentiate(&program)));
        Ok(())
    }

    #[test]
    fn equal_programs_are_compiled_once() -> Result<(), Error> {
        let mut other = gated_product();
        other.name = "of another name".to_owned();
        let one = requested([Request::of(gated_product())])?;
        let two = requested([Request::of(gated_product()), Request::of(other)])?;
        let digests = |text: &str| text.matches("digest :").count();
        assert_eq!((digests(&one), digests(&two)), (2, 2));
        Ok(())
    }

    #[test]
    fn names_of_users_need_not_be_identifiers() -> Result<(), Error> {
        let mut program = gated_product();
        program.name = "a \"quoted\" name".to_owned();
        program.inputs[0].name = "args".to_owned();
        program.inputs[1].name = "fn y-1".to_owned();
        program.inputs[0].components[0] = "{".to_owned();
        let text = requested([Request::of(program)])?;
        assert!(text.contains(r#"name : "a \"quoted\" name""#), "{text}");
        assert!(!text.contains("fn y-1"), "{text}");
        Ok(())
    }

    #[test]
    fn constants_need_not_be_finite() -> Result<(), Error> {
        let mut program = gated_product();
        let g = &mut program.graph;
        for value in [f64::NEG_INFINITY, f64::NAN] {
            let (first, bound) = (program.outputs[0].values[0], g.constant(value));
            program.outputs[0].values[0] = g.max(first, bound);
        }
        let text = requested([Request::of(program)])?;
        let bits = |value: f64| format!("from_bits (0x{:x}", value.to_bits());
        for value in [f64::NEG_INFINITY, f64::NAN] {
            assert!(text.contains(&bits(value)), "{text}");
        }
        Ok(())
    }

    #[test]
    fn what_is_no_operator_is_refused() {
        let limit = Limits::CPU.tensors;
        let refusal = |program| match requested([Request::of(program)]) {
            Err(Error::Refused(refusal)) => refusal,
            other => panic!("expected a refusal, got {other:?}"),
        };
        let large = refusal(sum_of(limit + 1));
        assert!(matches!(large, Refusal::TooLarge(_)), "{large:?}");
        let text = large.to_string();
        let told = format!("`long_sum` has {} lane inputs", limit + 1);
        assert!(text.contains(&told) && text.contains("split"), "{text}");

        let mut flawed = gated_product();
        let x = flawed.graph.lane(0, 0);
        flawed.outputs[0].values[0] = flawed.graph.call(Function::Gate { order: 1 }, x);
        assert!(matches!(refusal(flawed), Refusal::Flawed(_)));
        let nothing = refusal(Program::new("nothing", ""));
        assert!(matches!(nothing, Refusal::Form { .. }), "{nothing:?}");
    }

    #[test]
    fn derivatives_without_room_are_refused_and_the_program_is_not() {
        // The gradient of the gradient has each input twice, and twice the gradient of the output.
        let program = sum_of(Limits::CPU.tensors / 2 + 1);
        assert!(requested([Request::of(program.clone())]).is_ok());
        let request = Request::of(program).with_second_order(Gate::None);
        let error = requested([request]).unwrap_err();
        assert!(matches!(error, Error::SecondOrder { .. }), "{error:?}");
        assert!(error.to_string().contains("leave out"), "{error}");
    }
}
