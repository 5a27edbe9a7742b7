//! Compares the costs of programs with numbers derived by hand, and checks that nothing foldable is left.

use cayley::GradeSet;
use flashcliff_program::ir::{Node, Program, cost, differentiate};
use flashcliff_program::spec;

use crate::support::{algebra, operator};

fn multiplications(program: &Program) -> usize {
    cost(program).multiplications
}

/// The terms of a product are the non-zero entries of its Cayley table.
#[test]
fn a_plain_product_multiplies_once_for_each_term() {
    let terms = [
        ((2, 0, 0), 16),
        ((3, 0, 0), 64),
        ((3, 0, 1), 192),
        ((1, 3, 0), 256),
    ];
    for ((p, q, r), count) in terms {
        let algebra = algebra(p, q, r);
        let program = operator(&algebra, "geometric_product").program;
        assert_eq!(multiplications(&program), count, "{}", algebra.signature());
        let cost = cost(&program);
        // A blade takes one addition for each term but the first, and perhaps sign changes for lone terms.
        assert!(cost.additions >= count - algebra.blade_count());
        assert!(cost.additions <= count);
    }
}

/// Slices are pairs of a path and a blade of its output grade. The expected numbers are from the literature on the
/// fully connected product.
#[test]
fn path_slices() {
    let slices = [
        ((2, 0, 0), 14),
        ((3, 0, 0), 44),
        ((3, 0, 1), 127),
        ((1, 3, 0), 128),
        ((5, 0, 0), 352),
    ];
    for ((p, q, r), count) in slices {
        let operators = spec::operators(&algebra(p, q, r));
        let paths = operators
            .iter()
            .filter(|op| op.program.name == "path_product");
        let slices: usize = paths.map(|op| op.program.outputs[0].values.len()).sum();
        assert_eq!(slices, count, "Cl({p},{q},{r})");
    }
}

#[test]
fn the_steerable_product_of_space() {
    let algebra = algebra(3, 0, 0);
    let program = operator(&algebra, "sgp").program;
    let cost = cost(&program);
    // The product has 44 weighted components of x, 64 terms, the product of the gates and 8 gated blades.
    assert_eq!(cost.multiplications, 44 + 64 + 1 + 8);
    // 64 terms are added into 8 blades; signs are absorbed.
    assert_eq!(cost.additions, 64 - 8);
    assert_eq!(cost.transcendentals, 2);
    assert_eq!(cost.divisions, 0);
    assert_eq!(cost.flops(), 175);
}

#[test]
fn vectors_only_cost_less() {
    let algebra = algebra(3, 0, 0);
    let vectors = GradeSet::single(1);
    let operators = spec::operators(&algebra);
    let of = |left, right| {
        let found = operators
            .iter()
            .find(|op| (op.left, op.right) == (left, right) && op.program.name == "sgp");
        multiplications(&found.expect("a shipped pair").program)
    };
    // There are 3 components of x for each of 2 paths, 9 terms and 4 gated blades. The gate is a constant.
    assert_eq!(of(vectors, vectors), 6 + 9 + 4);
}

/// Checks folding, common subexpressions and signs of everything that is generated.
#[test]
fn nothing_foldable_is_left() {
    for (p, q, r) in [(1, 0, 0), (2, 0, 0), (3, 0, 1), (1, 3, 0)] {
        let algebra = algebra(p, q, r);
        for operator in spec::operators(&algebra) {
            let gradient = differentiate(&operator.program);
            for program in [&operator.program, &gradient] {
                check_folded(program);
            }
        }
    }
}

fn check_folded(program: &Program) {
    let graph = &program.graph;
    let mut nodes: Vec<Node> = Vec::new();
    for id in graph.reachable(program.roots()) {
        let node = graph.node(id);
        let constants: Vec<Option<f64>> = node
            .operands()
            .map(|operand| graph.constant_value(operand))
            .collect();
        let what = || format!("{node:?} in {}", program.name);
        if let Node::Add(..) | Node::Sub(..) | Node::Mul(..) = node {
            assert!(
                constants.iter().any(Option::is_none),
                "not folded: {}",
                what()
            );
        }
        match node {
            Node::Add(..) | Node::Sub(..) => assert!(!constants.contains(&Some(0.0)), "{}", what()),
            Node::Mul(..) => {
                for trivial in [0.0, 1.0, -1.0] {
                    assert!(!constants.contains(&Some(trivial)), "{}", what());
                }
            }
            Node::Neg(a) => assert!(!matches!(graph.node(a), Node::Neg(_) | Node::Sub(..))),
            _ => {}
        }
        nodes.push(node);
    }
    let count = nodes.len();
    nodes.sort_unstable();
    nodes.dedup();
    assert_eq!(
        nodes.len(),
        count,
        "{} computes something twice",
        program.name
    );
}

/// Dead code is left out: the gradient of a product does not compute the product.
#[test]
fn gradients_do_not_recompute_what_they_do_not_need() {
    let algebra = algebra(3, 0, 0);
    let program = operator(&algebra, "geometric_product").program;
    let gradient = differentiate(&program);
    // There are two products for each term, and no operation of the forward pass.
    assert_eq!(multiplications(&gradient), 2 * 64);
    let live = gradient.graph.reachable(gradient.roots()).len();
    assert!(
        live < gradient.graph.len(),
        "the forward product is dead but still there"
    );
}
