//! Tests of `flashcliff algebra` and `info`.

mod common;

use cayley::{Algebra, ProductKind};
use common::{failure, run, stdout, text};
use serde_json::{Value, json};

fn algebra(signature: &str) -> Value {
    serde_json::from_str(&stdout(&format!("algebra {signature} --json"))).unwrap()
}

#[test]
fn json_of_the_plane_is_as_written_by_hand() {
    let expected = json!({
        "signature": [2, 0, 0],
        "blades": ["1", "e1", "e2", "e12"],
        "grades": [0, 1, 1, 2],
        "paths": [[0,0,0],[0,1,1],[0,2,2],[1,0,1],[1,1,0],[1,1,2],[1,2,1],[2,0,2],[2,1,1],[2,2,0]],
        "products": {
            "geometric": [
                [0,0,0,1],[0,1,1,1],[0,2,2,1],[0,3,3,1],
                [1,0,1,1],[1,1,0,1],[1,2,3,1],[1,3,2,1],
                [2,0,2,1],[2,1,3,-1],[2,2,0,1],[2,3,1,-1],
                [3,0,3,1],[3,1,2,-1],[3,2,1,1],[3,3,0,-1]
            ],
            "exterior": [[0,0,0,1],[0,1,1,1],[0,2,2,1],[0,3,3,1],[1,0,1,1],[1,2,3,1],[2,0,2,1],[2,1,3,-1],[3,0,3,1]],
            "regressive": [[0,3,0,1],[1,2,0,1],[1,3,1,1],[2,1,0,-1],[2,3,2,1],[3,0,0,1],[3,1,1,1],[3,2,2,1],[3,3,3,1]],
            "left_contraction": [[0,0,0,1],[0,1,1,1],[0,2,2,1],[0,3,3,1],[1,1,0,1],[1,3,2,1],[2,2,0,1],[2,3,1,-1],[3,3,0,-1]],
            "right_contraction": [[0,0,0,1],[1,0,1,1],[1,1,0,1],[2,0,2,1],[2,2,0,1],[3,0,3,1],[3,1,2,-1],[3,2,1,1],[3,3,0,-1]],
            "scalar": [[0,0,0,1],[1,1,0,1],[2,2,0,1],[3,3,0,-1]],
            "commutator": [[1,2,3,1],[1,3,2,1],[2,1,3,-1],[2,3,1,-1],[3,1,2,-1],[3,2,1,1]]
        },
        "reverse": [1, 1, 1, -1],
        "grade_involution": [1, -1, -1, 1],
        "clifford_conjugate": [1, -1, -1, -1],
        "dual": [[0,3,1],[1,2,1],[2,1,-1],[3,0,1]]
    });
    assert_eq!(algebra("2,0,0"), expected);
    assert_eq!(algebra("cl200"), expected);
    assert_eq!(algebra("Cl(2,0)"), expected);
}

#[test]
fn keys_come_in_the_documented_order() {
    let text = stdout("algebra 1,0,0 --json");
    let keys = "signature blades grades paths products geometric exterior regressive left_contraction \
                right_contraction scalar commutator reverse grade_involution clifford_conjugate dual";
    let keys = keys.split(' ');
    let positions: Vec<usize> = keys
        .map(|key| text.find(&format!("\"{key}\":")).unwrap())
        .collect();
    assert!(positions.is_sorted(), "{text}");
}

#[test]
fn geometric_products_are_those_of_cayley_in_any_signature() {
    // Only the first of these algebras has kernels.
    for name in ["3,0,1", "2,1,2", "1,4,1", "0,0,2"] {
        let own = Algebra::new(name.parse().unwrap());
        let terms = own.product(ProductKind::Geometric).into_iter();
        let terms = terms.map(|term| json!([term.left, term.right, term.output, term.sign]));
        let products = &algebra(name)["products"];
        assert_eq!(products["geometric"], terms.collect::<Value>(), "{name}");
    }
}

#[test]
fn eight_dimensions_are_answered() {
    let algebra = algebra("8,0,0");
    assert_eq!(
        algebra["products"]["geometric"].as_array().unwrap().len(),
        65_536
    );
    let text = stdout("algebra 4,3,1");
    // A term takes two flops, but the first term of each of the 256 outputs takes one. A null vector removes a quarter of the 4^8 terms.
    assert!(
        text.contains("Cl(4,3,1)") && text.contains("49152          98048"),
        "{text}"
    );
}

#[test]
fn text_shows_blades_paths_terms_and_costs() {
    let text = stdout("algebra cl301");
    for part in [
        "e0^2 = 0",
        "e012 e013 e023 e123",
        "34 paths",
        "geometric            192            368",
        "steerable_product",
        "kernels: compiled",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(stdout("algebra 2,1,0").contains("operators are interpreted"));
}

#[test]
fn text_says_what_operators_commute_with() {
    let row = |signature: &str, option: &str| -> String {
        let text = stdout(&format!("algebra {signature}"));
        let mut lines = text.lines();
        let found = lines.find(|line| line.contains(option) && line.contains("grade_rms"));
        found
            .unwrap_or_else(|| panic!("{option}: {text}"))
            .to_owned()
    };
    assert!(row("cl300", "norm rms").starts_with("all versors"));
    for indefinite in ["cl301", "cl130", "2,1,0"] {
        let row = row(indefinite, "norm rms");
        assert!(
            row.starts_with("orthogonal of the Euclidean coordinates"),
            "{row}"
        );
    }
}

#[test]
fn a_product_table_has_a_row_for_every_blade() {
    let text = stdout("algebra cl300 --table exterior");
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows.len(), 10);
    assert_eq!(
        rows[0][1..],
        ["1", "e1", "e2", "e3", "e12", "e13", "e23", "e123"]
    );
    assert_eq!(
        rows[4],
        ["e2", "e2", "-e12", "0", "e23", "0", "-e123", "0", "0"]
    );
}

#[test]
fn graphs_are_of_the_operator_asked_for() {
    let sgp = stdout("algebra 2,1,0 --dot");
    assert!(sgp.starts_with("digraph sgp {") && sgp.trim_end().ends_with('}'));
    assert!(sgp.contains("\"o.e123\""));
    let gradient = stdout("algebra 2,1,0 --dot --grad");
    assert!(gradient.starts_with("digraph sgp_grad {") && gradient.contains("grad_x.e1"));
    let reverse = stdout("algebra cl200 --dot --operator reverse");
    assert_eq!(reverse.matches("label=\"neg\"").count(), 1);
    let error = failure("algebra cl200 --dot --operator nothing", 1);
    assert!(error.contains("`nothing`") && error.contains("sgp_rms"));
}

#[test]
fn info_lists_the_shipped_algebras() {
    let info: Value = serde_json::from_str(&stdout("info --json --threads 1")).unwrap();
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(info["threads"], 1);
    let names: Vec<&str> = info["algebras"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| a["name"].as_str().unwrap())
        .collect();
    let info = stdout("info");
    for name in "cl200 cl300 cl301 cl130 cl410 cl500 cl100 cl010 cl020".split(' ') {
        assert!(names.contains(&name), "{name}");
        assert!(info.contains(name));
    }
}

#[test]
fn without_a_command_there_is_help_and_status_2() {
    let output = run("");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("Usage: flashcliff"));
}
