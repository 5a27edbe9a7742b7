//! Layers of transformers by themselves: their parameters, how these start, and what is refused.

use flashcliff_network::tokens::{
    AttentionOptions, Beside, BlockOptions, Channels, Geometry, Layers, Start,
};
use flashcliff_network::{Axis, Error, Value};

const CHANNELS: Channels = Channels::new(4, 6);
const EXTRA: Channels = Channels::new(1, 2);

/// A network with tokens, and what a block of some options reads beside them.
fn with_inputs(geometry: Geometry, options: &BlockOptions) -> (Layers, Value, Beside) {
    let mut layers = Layers::new(geometry);
    let blades = geometry.blades();
    let of = |channels| [Axis::Rows, Axis::Token { blades, channels }];
    let network = &mut layers.network;
    let x = network.features("tokens", &of(CHANNELS));
    let has_extra = options.attention.extra != Channels::default();
    let beside = Beside {
        reference: geometry
            .has_joins()
            .then(|| network.features("reference", &[Axis::Rows])),
        mask: None,
        extra: has_extra.then(|| network.features("extra", &of(EXTRA))),
    };
    (layers, x, beside)
}

fn names(layers: &Layers) -> Vec<&str> {
    let network = &layers.network;
    let names = network.parameters().iter();
    names.map(|&value| network.name(value)).collect()
}

fn rich() -> BlockOptions {
    BlockOptions {
        attention: AttentionOptions {
            heads: 2,
            head_scale: true,
            extra: EXTRA,
            ..AttentionOptions::default()
        },
        mlp_layers: 3,
        dropout: Some(0.25),
        ..BlockOptions::default()
    }
}

#[test]
fn each_parameter_of_a_block_has_a_start_and_what_drops_has_none() {
    let gatr = Geometry::gatr().unwrap();
    let product = false;
    let plain = Geometry { product, ..gatr };
    for geometry in [gatr, plain, Geometry::lgatr_2().unwrap()] {
        let options = rich();
        let (layers, x, beside) = with_inputs(geometry, &options);
        let mut bare = layers.clone().without_dropout();
        let mut layers = layers;
        for layers in [&mut layers, &mut bare] {
            layers.block("a", x, CHANNELS, &options, &beside).unwrap();
        }
        assert_eq!(names(&layers), names(&bare));
        let drops = |layers: &Layers| layers.network.to_string().contains("dropout");
        assert!(drops(&layers) && !drops(&bare));

        let parameters = layers.network.parameters();
        assert_eq!(parameters.len(), layers.starts().len());
        for (&value, start) in parameters.iter().zip(layers.starts()) {
            let name = layers.network.name(value);
            assert!(name.starts_with("a."), "{name}");
            let last = layers.network.shape(value).unwrap().last().unwrap();
            let is_fine = match start {
                Start::Constant(at) => [0.0, 1.0].contains(at),
                Start::Uniform { bound, .. } => bound.is_finite() && *bound > 0.0,
                Start::Normal(deviation) => *deviation > 0.0,
                Start::Bounds(bounds) => bounds.len() == last.size(1),
            };
            assert!(is_fine, "{name}: {start:?}");
        }
        for prefix in layers.with_algebra() {
            let weight = format!("{prefix}.weight");
            assert!(
                names(&layers).iter().any(|name| name.starts_with(&weight)),
                "{prefix}"
            );
        }
    }
}

#[test]
fn attention_to_another_set_has_parameters_of_its_own() {
    let options = AttentionOptions {
        heads: 2,
        ..AttentionOptions::default()
    };
    let (mut layers, x, _) = with_inputs(Geometry::lgatr_2().unwrap(), &options.into());
    let context = [
        Axis::ContextRows,
        Axis::Token {
            blades: 16,
            channels: EXTRA,
        },
    ];
    let context = layers.network.features("context", &context);
    let (values, channels) = ([x, context], [CHANNELS, EXTRA]);
    let y = layers
        .cross_attention("", values, channels, &options, None)
        .unwrap();
    assert_eq!(layers.network.shape(y), layers.network.shape(x));
    assert_eq!(names(&layers)[0], "q_linear.weight");
    assert_eq!(
        layers.with_algebra(),
        ["q_linear", "k_linear", "v_linear", "out_linear"]
    );

    for refused in [
        AttentionOptions {
            extra: EXTRA,
            ..options
        },
        AttentionOptions {
            rotary: Some(100),
            ..options
        },
        AttentionOptions {
            heads: 0,
            ..options
        },
    ] {
        let made = layers.cross_attention("", values, channels, &refused, None);
        assert!(matches!(made, Err(Error::Option { .. })), "{refused:?}");
    }
}

#[test]
fn layers_refuse_what_does_not_fit() {
    let gatr = Geometry::gatr().unwrap();
    let (mut layers, x, beside) = with_inputs(gatr, &BlockOptions::default());
    let channels = [CHANNELS, CHANNELS];
    let made = layers.bilinear("", x, channels, None);
    assert!(matches!(made, Err(Error::Count { .. })), "{made:?}");
    let odd = [CHANNELS, Channels::new(3, 1)];
    let made = layers.bilinear("", x, odd, beside.reference);
    assert!(matches!(made, Err(Error::Option { .. })), "{made:?}");
    let made = layers.norm(x, EXTRA);
    assert!(matches!(made, Err(Error::Shape { .. })), "{made:?}");
    let made = layers.dropout(x, CHANNELS, Some(1.0), 0);
    assert!(matches!(made, Err(Error::Option { .. })), "{made:?}");

    let turning = AttentionOptions {
        rotary: Some(100),
        ..AttentionOptions::default()
    };
    let lgatr = Geometry::lgatr_2().unwrap();
    let (mut layers, x, beside) = with_inputs(lgatr, &turning.into());
    let made = layers.self_attention("", x, CHANNELS, &turning, &beside);
    assert!(matches!(made, Err(Error::Geometry { .. })), "{made:?}");
}
