//! Networks in files: what comes back, and what bad files do.

use std::sync::Arc;

use flashcliff::ops::{self, Setting, table};
use flashcliff::program::{Multivector, Program, Uniform};
use flashcliff::{Dtype, Gate, GradeSet, Operator, ProductKind, ProgramOptions};
use flashcliff_network::file::{self, Conversion, Error, Stored};
use flashcliff_network::tokens::{
    Attention, AttentionOptions, Channels, Draw, Geometry, Lanes, Linear, Step, Transformer,
};
use flashcliff_network::{Activation, Axis, Cpu, Keep, Network, Number, Rows, Scales, Value};

use crate::blocks::flat;
use crate::components::{in_frames, vectors};
use crate::frames::from_frame_to_frame;
use crate::networks::{self, BLADES, CHANNELS, numbers, slices, space};
use crate::runs;
use crate::slim::{To, blocks_to};

/// A network with its outputs.
pub(crate) struct Made {
    network: Network,
    outputs: Vec<(&'static str, Value)>,
}

pub(crate) const ROWS: Rows = Rows::new(3, 4);

pub(crate) fn converted<T: Number>(all: &[Vec<f64>]) -> Vec<Vec<T>> {
    let convert = |numbers: &Vec<f64>| numbers.iter().map(|&number| T::from_f64(number)).collect();
    all.iter().map(convert).collect()
}

fn parameters<T: Number>(network: &Network) -> Vec<Vec<T>> {
    converted(&numbers(network, network.parameters(), 1, 21))
}

fn written<T: Number>(made: &Made, parameters: &[Vec<T>]) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    file::write(
        &mut bytes,
        &made.network,
        &made.outputs,
        &slices(parameters),
    )?;
    Ok(bytes)
}

/// The file of a network in `f32`, with random parameters.
pub(crate) fn bytes(made: &Made) -> Vec<u8> {
    written::<f32>(made, &parameters(&made.network)).unwrap()
}

/// The results of a network for random inputs.
fn run<T: Number>(
    network: &Network,
    outputs: &[Value],
    parameters: &[Vec<T>],
    draw: Option<Draw>,
) -> Vec<Vec<f64>> {
    let plan = network.plan(outputs, ROWS, [T::DTYPE; 2]).unwrap();
    let inputs = converted::<T>(&numbers(network, network.inputs(), ROWS, 5));
    let scales = Scales {
        draw,
        ..Scales::default()
    };
    let results = runs::run(&plan, [&inputs, parameters], scales);
    let widened = results
        .iter()
        .map(|result| result.iter().map(|x| x.to_f64()));
    widened.map(Iterator::collect).collect()
}

/// Stores and loads a network, and compares results, parameters, the text and a second file bit for bit.
fn assert_round_trip<T: Number>(made: &Made) -> Stored {
    let given = parameters::<T>(&made.network);
    let bytes = written(made, &given).unwrap();
    let stored = file::read(bytes.clone()).unwrap();
    let found = stored.parameters::<T>(Conversion::None).unwrap();
    assert!(stored.types().all(|dtype| dtype == T::DTYPE));
    let values = |outputs: &[(&str, Value)]| outputs.iter().map(|own| own.1).collect::<Vec<_>>();
    let outputs: Vec<(&str, Value)> = stored
        .outputs()
        .iter()
        .map(|(name, value)| (&**name, *value))
        .collect();
    let names = |outputs: &[(&str, Value)]| {
        outputs
            .iter()
            .map(|own| own.0.to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&outputs), names(&made.outputs));
    let draw = Some(Draw { key: 3, step: 1 });
    let expected = run(&made.network, &values(&made.outputs), &given, draw);
    assert!(expected.iter().flatten().any(|&x| x != 0.0));
    let again = run(stored.network(), &values(&outputs), &found, draw);
    assert_eq!(again, expected);
    let mut second = Vec::new();
    file::write(&mut second, stored.network(), &outputs, &slices(&found)).unwrap();
    assert!(second == bytes);
    stored
}

/// A program with scalars of rows, a cut, a gate and constants, in two results of which a network takes the first.
fn own_program() -> Program {
    let algebra = space();
    let all = GradeSet::full(3);
    let mut p = Program::new("gated_share", "o = gate(x_0) w x / (mean of x_0^2 + eps)");
    let x = Multivector::input(&mut p, &algebra, "x", all);
    let w = p.param("w", 2);
    let square = p.graph.mul(x.components[0], x.components[0]);
    let sum = p.row_sum(square);
    let share = p.graph.uniform(Uniform::InvChannels);
    let mean = p.graph.mul(sum, share);
    let eps = p.graph.uniform(Uniform::Eps);
    let below = p.graph.add(mean, eps);
    let gate = flashcliff::program::Function::Gate { order: 0 };
    let gate = p.graph.call(gate, x.components[0]);
    let third = p.graph.constant(1.0 / 3.0);
    let factor = p.graph.mul(w[0], gate);
    let factor = p.graph.add(factor, third);
    let cut = p.cut(vec![factor]);
    let mut components = Vec::new();
    for component in x.components {
        let scaled = p.graph.mul(cut[0], component);
        let larger = p.graph.max(scaled, w[1]);
        components.push(p.graph.div(larger, below));
    }
    let o = Multivector {
        grades: all,
        components,
    };
    o.output(&mut p, &algebra);
    p
}

fn own_operator() -> Operator {
    let options = ProgramOptions {
        gate: Gate::Silu,
        eps: 0.1,
    };
    Operator::of(space(), &own_program(), &options).unwrap()
}

/// Every kind of node but steps, with custom operators and a derivative, a loss, and nodes that no output needs.
pub(crate) fn of_all_nodes() -> Made {
    let (mut network, [prediction, target]) = networks::of_all_nodes();
    let [loss, slope] = network.squared_error(prediction, target).unwrap();
    network.block();
    let shape = [Axis::Fixed(BLADES), Axis::Rows, Axis::Fixed(CHANNELS)];
    let x = network.input("x", &shape);
    let w = network.parameter("own.w", &[CHANNELS, 2]);
    let own = Arc::new(own_operator());
    let y = network.shared_operator(&own, &[x, w]).unwrap();
    let y = network.shared_operator(&own, &[y, w]).unwrap();
    let product = ops::product(
        space(),
        ProductKind::Commutator,
        Some(GradeSet::of(&[1, 2])),
        None,
    );
    let derivative = ops::reverse(space()).unwrap().gradient().unwrap();
    let y = network.operator(&derivative, &[x, y]).unwrap();
    let unused = network.activation(y, Activation::Relu).unwrap();
    network.scaled_sum([unused, unused], 2.0).unwrap();
    network.parameter("unread", &[3]);
    let few = network.input("few", &[Axis::Fixed(6), Axis::Rows, Axis::Fixed(CHANNELS)]);
    let z = network.operator(&product.unwrap(), &[few, x]).unwrap();
    let outside = network.input("outside", &[Axis::Rows]);
    network.activation(outside, Activation::Silu).unwrap();
    let a = network.parameter("a", &[2, 3]);
    let b = network.parameter("b", &[5]);
    let parts = network.concatenate(&[a, b, a]).unwrap();
    let sum = network.scaled_sum([parts, parts], 0.1).unwrap();
    Made {
        network,
        outputs: vec![
            ("prediction", prediction),
            ("loss", loss),
            ("slope", slope),
            ("own", y),
            ("commutator", z),
            ("parts", sum),
        ],
    }
}

#[test]
fn operators_of_programs_on_tokens_come_back() {
    let made = blocks_to(To::Items);
    let made = Made {
        network: made.network,
        outputs: vec![("y", made.output)],
    };
    assert_round_trip::<f32>(&made);
    assert_round_trip::<f64>(&made);
}

#[test]
fn frames_come_back() {
    let geometry = Geometry::of(crate::blocks::signature(1, 3, 0));
    let (network, [y, ..]) = from_frame_to_frame(geometry, false);
    let made = Made {
        network,
        outputs: vec![("y", y)],
    };
    assert_round_trip::<f64>(&made);
    assert_round_trip::<f32>(&made);
    let got = text(file::read(with_network(&bytes(&made), |network| {
        network["geometries"][0]["signature"] = serde_json::json!([3, 0, 1]);
    })));
    assert!(got.contains("the inverse of frames: expected"), "{got}");
}

#[test]
fn components_come_back() {
    let (made, _) = in_frames(vectors(), true);
    let made = Made {
        network: made.network,
        outputs: vec![("y", made.output)],
    };
    assert_round_trip::<f64>(&made);
    assert_round_trip::<f32>(&made);
}

#[test]
fn all_nodes_come_back() {
    let made = of_all_nodes();
    let stored = assert_round_trip::<f64>(&made);
    assert_round_trip::<f32>(&made);
    let network = stored.network();
    let names = |values: &[Value]| {
        let names = values.iter().map(|&value| network.name(value).to_owned());
        names.collect::<Vec<_>>()
    };
    // What no output needs is not there.
    assert_eq!(names(network.inputs()), ["points", "target", "x", "few"]);
    let parameters = ["weight", "paths", "stored", "last", "own.w", "a", "b"];
    assert_eq!(names(network.parameters()), parameters);
    // Blocks and shared operators come back.
    let text = network.to_string();
    assert_eq!(text.matches("block ").count(), 3, "{text}");
}

/// An operator on its own inputs and parameters.
fn of_operator(operator: &Operator) -> Made {
    let mut network = Network::new();
    let inputs = networks::values_of(&mut network, operator, [CHANNELS; 2]);
    let o = network.operator(operator, &inputs).unwrap();
    Made {
        network,
        outputs: vec![("o", o)],
    }
}

/// Settings of an operator, each apart from its default.
fn settings(row: &table::Operator) -> Vec<(&'static str, Setting<'static>)> {
    let grades = GradeSet::of(&[0, 2]);
    let all = row.options.settings().into_iter();
    let settings = all.flat_map(|setting| {
        let values: Vec<Setting<'static>> = match setting.kind {
            table::Kind::Choice(choices) => {
                let names = choices.values.iter();
                names.map(|choice| Setting::Name(choice.name)).collect()
            }
            table::Kind::Flag => [false, true].map(Setting::Flag).into(),
            table::Kind::Number => vec![Setting::Number(0.1 + 0.2)],
            table::Kind::Grades => vec![Setting::Grades(Some(grades)), Setting::Grades(None)],
            table::Kind::Bytes => Vec::new(),
        };
        let name = setting.name;
        values.into_iter().map(move |value| (name, value))
    });
    settings.collect()
}

#[test]
fn operators_of_the_table_come_back() {
    let mut count = 0;
    for row in table::OPERATORS {
        for setting in settings(row)
            .into_iter()
            .map(|own| vec![own])
            .chain([vec![]])
        {
            // A norm that leaves nothing to do is not an operator.
            let Ok(operator) = ops::by_name(space(), row.name, &setting) else {
                assert_eq!(
                    (row.name, &*setting),
                    ("grade_rms", &[("norm", Setting::Name("none"))][..])
                );
                continue;
            };
            count += 1;
            let stored = assert_round_trip::<f64>(&of_operator(&operator));
            assert!(stored.network().to_string().contains(operator.name()));
        }
    }
    assert!(count > 50, "{count}");
}

/// A network with gradients is stored as without, and trains after loading as before.
#[test]
fn gradients_are_left_out() {
    let (network, [prediction, target]) = networks::of_all_nodes();
    let plain = Made {
        network: network.clone(),
        outputs: vec![("prediction", prediction)],
    };
    let mut network = network;
    let [_, seed] = network.squared_error(prediction, target).unwrap();
    let pairs = network
        .gradients(prediction, seed, Keep::BetweenBlocks)
        .unwrap();
    let trained = Made {
        network,
        outputs: vec![("prediction", prediction)],
    };
    assert!(bytes(&trained) == bytes(&plain));
    let outputs = vec![("gradient", pairs[0].1)];
    let error = written(
        &Made { outputs, ..trained },
        &parameters::<f32>(&plain.network),
    );
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("cannot be stored: a file has the forward pass"),
        "{error}"
    );
}

/// Every derivative of an operator comes back, or is refused where it is written: a file that cannot be read is none.
#[test]
fn derivatives_of_operators_come_back_or_are_refused() {
    let gate = ops::by_name(space(), "gate", &[("gate", Setting::Name("silu"))]).unwrap();
    let [mut stored, mut refused] = [0; 2];
    for operator in [own_operator(), gate, ops::reverse(space()).unwrap()] {
        let mut derivative = operator;
        // Kernels have no room for the ones after these.
        while let Ok(next) = derivative.gradient() {
            derivative = next;
            match file::operator_to_json(&derivative) {
                Ok(text) => {
                    let again = file::operator_from_json(&text).unwrap();
                    assert_eq!(file::operator_to_json(&again).unwrap(), text);
                    stored += 1;
                }
                Err(error) => {
                    assert!(matches!(error, Error::NotStored { .. }), "{error}");
                    let name = format!("`{}` cannot be stored: ", derivative.name());
                    assert!(error.to_string().contains(&name), "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(stored > 0 && refused > 0, "{stored} {refused}");
}

/// How a step changes is made of its gradient, and is not stored.
#[test]
fn derivatives_of_steps_are_refused() {
    let geometry = Geometry::lgatr_2().unwrap();
    let channels = Channels::new(2, 3);
    let linear = Linear::new(geometry, channels, vec![channels]).unwrap();
    let gated = Lanes::gated(geometry, channels, geometry.gates()).unwrap();
    let attention = Attention::new(geometry, 1, Channels::new(2, 3), true);
    let cases = [
        ("equivariant_linear", linear.shapes(), Step::Linear(linear)),
        ("scalar_gate_tangent", Vec::new(), Step::Lanes(gated)),
        ("head_norm", Vec::new(), Step::Attention(attention)),
    ];
    for (name, shapes, step) in cases {
        let mut network = Network::new();
        let axes = |channels| {
            let blades = geometry.blades();
            [Axis::Rows, Axis::Token { blades, channels }]
        };
        let x = network.input("x", &axes(step.input()));
        let seed = network.features("seed", &axes(step.output()));
        let change = network.features("change", &axes(step.input()));
        let mut inputs = vec![x];
        if !shapes.is_empty() {
            inputs.push(flat(
                &mut network,
                &shapes,
                &(0..shapes.len()).collect::<Vec<_>>(),
            ));
        }
        let y = network.step(step, &inputs).unwrap();
        let first = network.gradients_by(y, seed, &[x], Keep::All).unwrap()[0].1;
        let along = network.gradients_from(&[(first, change)], &[seed], Keep::All);
        let made = Made {
            outputs: vec![("along", along.unwrap()[0].1)],
            network,
        };
        let error = written(&made, &parameters::<f32>(&made.network));
        let error = error.unwrap_err().to_string();
        let expected = format!("the derivative of a step, `{name}` cannot be stored");
        assert!(error.contains(&expected), "{error}");
    }
}

pub(crate) fn small(geometry: Geometry) -> Transformer {
    let ends = Channels::new(1, 2);
    Transformer {
        blocks: 2,
        attention: AttentionOptions {
            heads: 2,
            ..AttentionOptions::default()
        },
        ..Transformer::new(geometry, ends, ends, Channels::new(2, 4))
    }
}

pub(crate) fn transformer(options: &Transformer) -> Made {
    let (network, ends) = options.network().unwrap();
    Made {
        network,
        outputs: vec![("tokens", ends.output)],
    }
}

pub(crate) fn transformers() -> [Transformer; 5] {
    let gatr = small(Geometry::gatr().unwrap());
    let lgatr = small(Geometry::lgatr_2().unwrap());
    let attention = AttentionOptions {
        heads: 2,
        multi_query: false,
        rotary: Some(100),
        head_scale: true,
        extra: Channels::new(1, 1),
        dropout: Some(0.25),
        ..AttentionOptions::default()
    };
    let options = Transformer {
        attention,
        mask: Some([Axis::Samples, Axis::Fixed(1), Axis::Fixed(1), Axis::Items]),
        mlp_layers: 3,
        dropout: Some(0.5),
        ..gatr.clone()
    };
    let extra = Transformer {
        attention: AttentionOptions {
            extra: Channels::new(2, 1),
            ..lgatr.attention
        },
        ..lgatr.clone()
    };
    let conformal = Geometry {
        product: false,
        ..Geometry::of("cl410".parse().unwrap())
    };
    [gatr, lgatr, options, extra, small(conformal)]
}

#[test]
fn whole_transformers_come_back() {
    for options in transformers() {
        let made = transformer(&options);
        assert_round_trip::<f64>(&made);
        assert_round_trip::<f32>(&made);
    }
}

#[test]
fn paths_are_written_and_read() {
    let folder = std::env::temp_dir().join(format!("flashcliff-network-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("network.safetensors");
    let made = of_all_nodes();
    let given = parameters::<f64>(&made.network);
    file::save(&path, &made.network, &made.outputs, &slices(&given)).unwrap();
    let stored = file::load(&path).unwrap();
    assert_eq!(
        stored.parameters::<f64>(Conversion::None).unwrap()[0],
        given[0]
    );
    let missing = file::load(folder.join("missing")).unwrap_err().to_string();
    assert!(missing.contains("missing"), "{missing}");
    std::fs::remove_dir_all(&folder).unwrap();
    let gone = file::save(&path, &made.network, &made.outputs, &slices(&given));
    assert!(matches!(gone, Err(Error::Path { .. })));
}

#[test]
fn types_are_converted_on_request_alone() {
    let made = transformer(&small(Geometry::gatr().unwrap()));
    let given = parameters::<f64>(&made.network);
    let stored = file::read(written(&made, &given).unwrap()).unwrap();
    let refused = stored.parameters::<f32>(Conversion::None).unwrap_err();
    let expected = "the tensor `linear_in.weight`: expected f32, got f64";
    assert!(refused.to_string().contains(expected), "{refused}");
    let rounded = stored.parameters::<f32>(Conversion::Rounded).unwrap();
    assert_eq!(rounded[0][0], given[0][0] as f32);
    let narrow = file::read(written(&made, &rounded).unwrap()).unwrap();
    let wide = narrow.parameters::<f64>(Conversion::Rounded).unwrap();
    assert_eq!(wide[0][0], f64::from(rounded[0][0]));
}

fn text<T: std::fmt::Debug>(refused: Result<T, Error>) -> String {
    refused.unwrap_err().to_string()
}

#[test]
fn what_files_cannot_have_is_refused() {
    let mut network = Network::new();
    let x = network.input("x", &[Axis::Rows, Axis::Fixed(2)]);
    let y = network.activation(x, Activation::Relu).unwrap();
    let store = |network: &Network, outputs: &[(&str, Value)], parameters: &[&[f32]]| {
        text(file::write(&mut Vec::new(), network, outputs, parameters))
    };
    let twice = store(&network, &[("y", y), ("y", y)], &[]);
    assert!(
        twice.contains("outputs: expected names that are there once, got `y`"),
        "{twice}"
    );
    let input = store(&network, &[("y", x)], &[]);
    assert!(
        input.contains("a value with axes that a node computes"),
        "{input}"
    );
    let other = store(&Network::new(), &[("y", y)], &[]);
    assert!(other.contains("a value of another network"), "{other}");
    let more = store(&network, &[("y", y)], &[&[1.0]]);
    assert!(
        more.contains("the parameters: expected 0 elements, got 1"),
        "{more}"
    );
    let infinite = network.scaled_sum([y, y], f64::INFINITY).unwrap();
    let infinite = store(&network, &[("y", infinite)], &[]);
    assert!(
        infinite.contains("expected a finite number, got inf"),
        "{infinite}"
    );

    // Names of inputs and parameters.
    let z = network.input("x", &[Axis::Rows, Axis::Fixed(2)]);
    let sum = network.scaled_sum([y, z], 1.0).unwrap();
    let inputs = store(&network, &[("y", sum)], &[]);
    assert!(
        inputs.contains("inputs: expected names that are there once, got `x`"),
        "{inputs}"
    );
    for names in [["w", "w"], ["__metadata__", "w"]] {
        let mut network = Network::new();
        let [a, b] = names.map(|name| network.parameter(name, &[2]));
        let sum = network.scaled_sum([a, b], 1.0).unwrap();
        let got = store(&network, &[("y", sum)], &[&[1.0; 2], &[1.0; 2]]);
        assert!(
            got.contains("parameters: expected names that are there once"),
            "{got}"
        );
        let got = store(&network, &[("y", sum)], &[&[1.0; 2], &[1.0; 3]]);
        assert!(got.contains("expected 2 elements, got 3"), "{got}");
    }

    // A derivative with matrix products is not a program.
    let mut network = Network::new();
    let linear = ops::mv_linear(space(), &networks::linear_options()).unwrap();
    let derivative = linear.gradient().unwrap();
    let shape = [Axis::Fixed(BLADES), Axis::Rows, Axis::Fixed(CHANNELS)];
    let x = network.input("x", &shape);
    let w = network.parameter("w", &[CHANNELS, CHANNELS]);
    let y = network.operator(&derivative, &[x, w, x]).unwrap();
    let got = store(&network, &[("y", y)], &[&[1.0; 4]]);
    assert!(
        got.contains("neither in the table of operators nor a program"),
        "{got}"
    );
}

/// The header of a file, and its data.
fn header(bytes: &[u8]) -> (serde_json::Value, &[u8]) {
    let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let (header, data) = bytes[8..].split_at(len);
    (serde_json::from_slice(header).unwrap(), data)
}

fn with_header(header: &serde_json::Value, data: &[u8]) -> Vec<u8> {
    let text = serde_json::to_vec(header).unwrap();
    let len = (text.len() as u64).to_le_bytes();
    [&len, &*text, data].concat()
}

/// The file with another network, which `edit` makes of the file's network.
pub(crate) fn with_network(bytes: &[u8], edit: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
    let (mut header, data) = header(bytes);
    let text = &mut header["__metadata__"]["flashcliff_network"];
    let mut network = serde_json::from_str(text.as_str().unwrap()).unwrap();
    edit(&mut network);
    *text = network.to_string().into();
    with_header(&header, data)
}

/// A change of a network, and words of the error that follows.
type Case<'a> = (&'a dyn Fn(&mut serde_json::Value), &'a str);

#[test]
fn bad_networks_are_refused() {
    use serde_json::{Value as Json, json};
    let made = of_all_nodes();
    let good = bytes(&made);
    assert!(file::read(with_network(&good, |_| {})).is_ok());
    let refused = |edit: &dyn Fn(&mut Json)| text(file::read(with_network(&good, edit)));
    let node = |network: &Json, work: &str| {
        let nodes = network["nodes"].as_array().unwrap();
        nodes
            .iter()
            .position(|node| node["work"] == work || node["work"].get(work).is_some())
            .unwrap()
    };
    let operator = |network: &Json, name: &str| {
        let operators = network["operators"].as_array().unwrap();
        operators
            .iter()
            .position(|own| {
                own["form"]["named"]["name"] == name || own["form"]["program"]["name"] == name
            })
            .unwrap()
    };
    let cases: [Case<'_>; 22] = [
        (
            &|n| n["version"] = json!(2),
            "expected a network of format 1, got format 2",
        ),
        (
            &|n| n["version"] = json!("one"),
            "the network: invalid type",
        ),
        (&|n| n["nodes"] = json!(7), "the network: invalid type"),
        (&|n| n["more"] = json!(7), "unknown field `more`"),
        (
            &|n| n["nodes"][0]["work"] = json!("teleport"),
            "unknown variant `teleport`",
        ),
        (
            &|n| n["nodes"][0]["inputs"] = json!([11]),
            "values: expected a number below 11, got 11",
        ),
        (&|n| n["nodes"][0]["inputs"] = json!([1, 1]), "node 0"),
        (
            &|n| n["nodes"][0]["inputs"] = json!([-1]),
            "the network: invalid value",
        ),
        (
            &|n| n["outputs"][0]["value"] = json!(4096),
            "values: expected a number below",
        ),
        (
            &|n| n["outputs"][0]["name"] = json!("loss"),
            "outputs: expected names that are there once",
        ),
        (
            &|n| n["inputs"][0]["name"] = json!("target"),
            "inputs: expected names that are there once",
        ),
        (
            &|n| n["parameters"][0]["name"] = json!("paths"),
            "parameters: expected names that are there once",
        ),
        (
            &|n| n["parameters"][0]["name"] = json!("none"),
            "expected the tensor `none`, got none",
        ),
        (
            &|n| n["parameters"][0]["shape"] = json!([2, 3]),
            "the tensor `weight`: expected the shape [2, 3], got [2, 2]",
        ),
        (
            &|n| n["inputs"][0]["axes"] = json!([{"fixed": 4_u64 << 32}]),
            "the size of an axis: expected at most",
        ),
        (
            &|n| n["inputs"][0]["axes"] = json!(vec![json!({"fixed": 1_u64 << 30}); 9]),
            "elements of a value: expected at most",
        ),
        (
            &|n| {
                let at = node(n, "operator");
                n["nodes"][at]["work"] = json!({"operator": 99})
            },
            "operators: expected a number below",
        ),
        (
            &|n| {
                let at = node(n, "scaled_sum");
                n["nodes"][at]["work"] = json!({"scaled_sum": null})
            },
            "the network: invalid type",
        ),
        (
            &|n| {
                let at = node(n, "extend_blades");
                n["nodes"][at]["work"] = json!({"extend_blades": 1000})
            },
            "blades: expected at most 256, got 1000",
        ),
        (
            &|n| {
                let at = operator(n, "sgp_norm");
                n["operators"][at]["form"]["named"]["settings"]["norm"] = json!("none")
            },
            "`sgp_norm`: expected a program of digest",
        ),
        (
            &|n| {
                let at = operator(n, "sgp_norm");
                n["operators"][at]["form"]["named"]["settings"]["gate"] = json!(1.5)
            },
            "operator",
        ),
        (
            &|n| {
                let at = operator(n, "gated_share");
                n["operators"][at]["form"]["program"]["arguments"] =
                    json!([{"parameter": 0}, {"input": 0}])
            },
            "`gated_share`: expected a program of digest",
        ),
    ];
    for (edit, expected) in cases {
        let got = refused(edit);
        assert!(got.contains(expected), "{got}; {expected}");
    }
}

/// Expressions of programs: each out of its place, each operand beyond the expressions before it.
#[test]
fn bad_programs_are_refused() {
    let good = bytes(&of_all_nodes());
    let edited = |edit: &dyn Fn(&mut serde_json::Value)| {
        file::read(with_network(&good, |network| {
            let operators = network["operators"].as_array_mut().unwrap();
            let own = operators
                .iter_mut()
                .find(|own| own["form"]["program"]["name"] == "gated_share");
            edit(&mut own.unwrap()["form"]["program"]);
        }))
    };
    let count = own_program().graph.len();
    for at in 0..count {
        let swapped = edited(&|program| {
            let all = program["expressions"].as_array_mut().unwrap();
            all.swap(at, (at + 1) % count);
        });
        assert!(matches!(
            swapped,
            Err(Error::Expression { .. } | Error::Digest { .. })
        ));
        let twice = edited(&|program| {
            let all = program["expressions"].as_array_mut().unwrap();
            all.insert(at, all[at].clone());
        });
        assert!(matches!(twice, Err(Error::Expression { .. })), "{at}");
        let beyond = edited(&|program| {
            program["expressions"][at] = serde_json::json!({"add": [at, at + 1]});
        });
        assert!(matches!(beyond, Err(Error::Expression { .. })), "{at}");
    }
    let lists: [(&str, serde_json::Value); 4] = [
        ("row_sums", serde_json::json!([count])),
        ("cuts", serde_json::json!([[count]])),
        ("expressions", serde_json::json!([{"neg": 0}])),
        ("results", serde_json::json!([])),
    ];
    for (list, value) in lists {
        assert!(
            edited(&|program| program[list] = value.clone()).is_err(),
            "{list}"
        );
    }
    // A digest that fits does not make a program of what is none.
    let empty = file::read(with_network(&good, |network| {
        let operators = network["operators"].as_array_mut().unwrap();
        let own = operators
            .iter_mut()
            .find(|own| own["form"]["program"]["name"] == "gated_share");
        let own = own.unwrap();
        own["form"]["program"]["results"] = serde_json::json!([]);
        let mut program = own_program();
        (program.outputs, program.results) = (Vec::new(), Vec::new());
        own["digest"] = program.digest().to_string().into();
    }));
    let empty = text(empty);
    assert!(
        empty.contains("expected at least one output, got none"),
        "{empty}"
    );
}

#[test]
fn bad_steps_are_refused() {
    use serde_json::{Value as Json, json};
    let good = bytes(&transformer(&transformers()[2]));
    let step = |network: &mut Json, kind: &str, field: &str, value: Json| {
        let nodes = network["nodes"].as_array_mut().unwrap();
        let found = nodes
            .iter_mut()
            .find(|node| node["work"]["step"].get(kind).is_some());
        found.unwrap()["work"]["step"][kind][field] = value;
    };
    let cases = [
        (
            "linear",
            "geometry",
            json!(5),
            "geometries: expected a number below 1, got 5",
        ),
        ("linear", "layers", json!([]), "layers: expected at least 1"),
        (
            "linear",
            "input",
            json!({"multivectors": 1_u64 << 40, "scalars": 1}),
            "channels: expected at most",
        ),
        ("linear", "biased", json!(false), "node"),
        ("attention", "heads", json!(0), "heads: expected at least 1"),
        (
            "attention",
            "heads",
            json!(u64::MAX),
            "channels of all heads: expected at most",
        ),
        ("attention", "masked", json!(false), "node"),
        ("rotary", "base", json!(0), "the base of rotary positions"),
        ("gains", "heads", json!(0), "heads: expected at least 1"),
        ("dropout", "p", json!(1.0), "a probability below 1"),
        ("dropout", "p", json!("half"), "the network: invalid type"),
        (
            "reinserted",
            "blades",
            json!(1 << 20),
            "blades: expected at most 256",
        ),
        (
            "lanes",
            "each",
            json!({"multivectors": 3, "scalars": 3}),
            "node",
        ),
    ];
    for (kind, field, value, expected) in cases {
        let got = text(file::read(with_network(&good, |network| {
            step(network, kind, field, value)
        })));
        assert!(got.contains(expected), "{kind}, {field}: {got}; {expected}");
    }
    let geometry = |field: &str, value: Json| {
        text(file::read(with_network(&good, |network| {
            network["geometries"][0][field] = value
        })))
    };
    assert!(
        geometry("signature", json!([3, 0, 0]))
            .contains("geometry 0: join: expected an algebra Cl(n,0,1)")
    );
    assert!(geometry("signature", json!([9, 0, 0])).contains("geometry 0"));
    assert!(geometry("signature", json!([0, 0, 0])).contains("geometry 0"));
    assert!(geometry("group", json!("none")).contains("unknown variant `none`"));
}

/// Norms, gates and products were separate steps before they were programs.
#[test]
fn steps_of_older_files_are_their_programs() {
    use serde_json::{Value as Json, json};
    for geometry in [Geometry::gatr().unwrap(), Geometry::lgatr_2().unwrap()] {
        let made = transformer(&small(geometry));
        let mut count = 0;
        let older = with_network(&bytes(&made), |network| {
            let operators = network["operators"].take();
            let name = |operator: &Json| {
                operators[operator.as_u64().unwrap() as usize]["form"]["program"]["name"].clone()
            };
            for node in network["nodes"].as_array_mut().unwrap() {
                let has_gains = node["inputs"].as_array().unwrap().len() == 2;
                let Some(step) = node["work"].get_mut("step") else {
                    continue;
                };
                let Some(lanes) = step.get("lanes") else {
                    continue;
                };
                let channels = lanes["each"].clone();
                *step = match name(&lanes["operator"]).as_str().unwrap() {
                    "invariant_norm" => {
                        json!({"norm": {"geometry": 0, "channels": channels, "gains": has_gains}})
                    }
                    "scalar_gate" => json!({"gated": {"geometry": 0, "channels": channels}}),
                    "products" => json!({"products": {
                        "geometry": 0, "each": channels["multivectors"], "scalars": channels["scalars"]
                    }}),
                    other => panic!("{other}"),
                };
                count += 1;
            }
            network["operators"] = json!([]);
        });
        assert!(count > 2, "{count}");
        let stored = file::read(older).unwrap();
        let given = parameters::<f32>(&made.network);
        let outputs = stored.outputs().iter();
        let outputs: Vec<(&str, Value)> = outputs.map(|(name, value)| (&**name, *value)).collect();
        let mut now = Vec::new();
        file::write(&mut now, stored.network(), &outputs, &slices(&given)).unwrap();
        assert!(now == bytes(&made));
    }
}

#[test]
fn tensors_of_other_programs_are_checked() {
    let made = transformer(&small(Geometry::gatr().unwrap()));
    let good = bytes(&made);
    let edited = |edit: &dyn Fn(&mut serde_json::Value)| {
        let (mut header, data) = header(&good);
        edit(&mut header);
        file::read(with_header(&header, data))
    };
    let name = "linear_in.weight";
    let bits = edited(&|header| header[name]["dtype"] = "I32".into());
    assert!(text(bits).contains("the tensor `linear_in.weight`: expected F32 or F64, got I32"));
    let gone = edited(&|header| {
        let tensor = header.as_object_mut().unwrap().remove(name).unwrap();
        header["renamed"] = tensor;
    });
    assert!(text(gone).contains("expected the tensor `linear_in.weight`, got none of this name"));
    // Axes of one element change nothing.
    let axes = header(&good).0[name]["shape"].clone();
    let axes: Vec<usize> = serde_json::from_value(axes).unwrap();
    let longer = [vec![1, axes[0], 1], axes[1..].to_vec()].concat();
    let found = edited(&|header| header[name]["shape"] = longer.clone().into()).unwrap();
    assert_eq!(
        found.network().to_string(),
        file::read(good.clone()).unwrap().network().to_string()
    );
    let found = found.parameters::<f32>(Conversion::None).unwrap();
    assert_eq!(found, parameters::<f32>(&made.network));
    let turned = edited(&|header| header[name]["shape"].as_array_mut().unwrap().reverse());
    assert!(text(turned).contains("the tensor `linear_in.weight`: expected the shape"));
    let plain = edited(&|header| {
        header.as_object_mut().unwrap().remove("__metadata__");
    });
    assert!(matches!(plain, Err(Error::NoNetwork)));
    let wide = edited(&|header| header[name]["dtype"] = "F64".into());
    assert!(matches!(wide, Err(Error::Container(_))));

    // Another program changes the weights, adds a tensor and keeps the text.
    let file = safetensors::SafeTensors::deserialize(&good).unwrap();
    let (_, metadata) = safetensors::SafeTensors::read_metadata(&good).unwrap();
    let mut tensors = file.tensors();
    let ones = vec![1.0_f32.to_le_bytes(); file.tensor(name).unwrap().data().len() / 4].concat();
    for (own, tensor) in &mut tensors {
        if own == name {
            let shape = tensor.shape().to_vec();
            *tensor = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape, &ones)
                .unwrap();
        }
    }
    let more = safetensors::tensor::TensorView::new(safetensors::Dtype::U8, vec![3], &[1, 2, 3]);
    tensors.push(("step".to_owned(), more.unwrap()));
    let again = safetensors::serialize(tensors, metadata.metadata().clone()).unwrap();
    let stored = file::read(again).unwrap();
    let found = stored.parameters::<f32>(Conversion::None).unwrap();
    assert!(found[0].iter().all(|&x| x == 1.0));
    assert_eq!(found[1..], parameters::<f32>(&made.network)[1..]);
}

#[test]
fn truncated_files_are_refused() {
    let good = bytes(&transformer(&small(Geometry::lgatr_2().unwrap())));
    let (header, _) = header(&good);
    let len = serde_json::to_vec(&header).unwrap().len() + 64;
    let cuts = (0..len).chain((len..good.len()).step_by(97));
    for cut in cuts.filter(|&cut| cut < good.len()) {
        assert!(
            matches!(file::read(good[..cut].to_vec()), Err(Error::Container(_))),
            "{cut}"
        );
    }
    assert!(matches!(
        file::read([&*good, &[0]].concat()),
        Err(Error::Container(_))
    ));
    let empty = file::read(Vec::new()).map(drop).unwrap_err().to_string();
    assert!(empty.ends_with("got header too small"), "{empty}");
}

/// Numbers of rows that memory cannot have.
#[test]
fn batches_without_room_are_refused() {
    let made = transformer(&small(Geometry::gatr().unwrap()));
    let output = made.outputs[0].1;
    for samples in [1 << 50, usize::MAX / 2, usize::MAX] {
        for items in [1, 7, usize::MAX] {
            let rows = Rows::new(samples, items);
            let refused = made.network.plan(&[output], rows, [Dtype::F32; 2]);
            let got = refused.map(drop).unwrap_err().to_string();
            assert!(got.contains("make the batch smaller"), "{got}");
        }
    }
    let rows = Rows::new(1 << 36, 1);
    let plan = made.network.plan(&[output], rows, [Dtype::F32; 2]).unwrap();
    let refused = Cpu::<f32>::new(&plan).map(drop).unwrap_err().to_string();
    assert!(refused.contains("the memory of a plan"), "{refused}");
}
