//! Tests of checkpoints: exact round trips, and every way in which a file can be wrong.

use std::fs;

use candle_core::{DType, Device, Tensor};
use flashcliff::{Algebra, Invariant, Norm, Signature};
use flashcliff_candle::Error;
use flashcliff_candle::checkpoint::Checkpoint;
use flashcliff_candle::init::Parameters;
use flashcliff_candle::layers::{FlashCliffordLayer, FlashCliffordOptions, MVSiLU};
use flashcliff_candle::models::{Architecture, Model};

fn model(seed: u64) -> Model {
    Model::new(Architecture::Volumes, seed, DType::F32).unwrap()
}

fn bits(model: &Model) -> Vec<u32> {
    let variables = model.parameters().variables();
    let flat = variables.iter().map(|(_, var)| var.flatten_all().unwrap());
    flat.flat_map(|var| var.to_vec1::<f32>().unwrap())
        .map(f32::to_bits)
        .collect()
}

#[test]
fn a_model_comes_back_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let (stored, other) = (model(1), model(2));
    assert_ne!(bits(&stored), bits(&other));
    stored.save(&path).unwrap();
    other.load(&path).unwrap();
    assert_eq!(bits(&stored), bits(&other));
    // Only the checkpoint is left in the folder.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn the_bytes_depend_on_the_contents_only() {
    let folder = tempfile::tempdir().unwrap();
    let save = |name: &str| {
        let (mut checkpoint, model) = (Checkpoint::new(), model(3));
        model.export("", &mut checkpoint);
        checkpoint.set_network(model.description().unwrap());
        for key in ["step", "seed", "architecture", "loss"] {
            checkpoint.insert_text(key, "1");
        }
        let path = folder.path().join(name);
        checkpoint.save(&path).unwrap();
        fs::read(path).unwrap()
    };
    let bytes = save("a");
    // Keys of metadata in a hash table would have another order in some of these.
    assert!((0..8).all(|_| save("b") == bytes));
    let loaded = Checkpoint::load(folder.path().join("a")).unwrap();
    assert!(loaded.network().is_some() && loaded.text("loss").is_some());
    assert!(loaded.bytes("c").unwrap() == bytes);
}

/// Readers of safetensors refuse files with a longer header.
#[test]
fn texts_that_no_reader_accepts_are_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let mut checkpoint = Checkpoint::new();
    // The rest of the header is less than a kilobyte.
    checkpoint.insert_text("text", "a".repeat(99_999_000));
    checkpoint.save(&path).unwrap();
    Checkpoint::load(&path).unwrap();
    let before = fs::metadata(&path).unwrap().len();
    checkpoint.insert_text("text", "a".repeat(100_000_000));
    let error = checkpoint.save(&path).unwrap_err();
    let Error::Header { expected, got, .. } = error else {
        panic!("{error}");
    };
    assert!(expected == 100_000_000 && got > expected, "{got}");
    assert_eq!(fs::metadata(&path).unwrap().len(), before);
}

/// PyTorch's modules and networks in files may have axes of one element that a parameter here lacks.
#[test]
fn axes_of_one_element_do_not_matter() {
    let (stored, other) = (model(1), model(2));
    let mut checkpoint = Checkpoint::new();
    for (name, var) in stored.parameters().variables() {
        checkpoint.insert(name, &var.unsqueeze(1).unwrap());
    }
    other.import("", &checkpoint).unwrap();
    assert_eq!(bits(&stored), bits(&other));
}

#[test]
fn text_and_types_survive() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let mut checkpoint = Checkpoint::new();
    checkpoint.insert(
        "double",
        &Tensor::new(&[1.5f64, f64::MIN_POSITIVE], &Device::Cpu).unwrap(),
    );
    checkpoint.insert("count", &Tensor::new(&[7u32], &Device::Cpu).unwrap());
    checkpoint.insert(
        "view",
        &Tensor::arange(0f32, 6., &Device::Cpu)
            .unwrap()
            .reshape((2, 3))
            .unwrap()
            .t()
            .unwrap(),
    );
    checkpoint.insert_text("note", "a \"quoted\" line\n");
    checkpoint.save(&path).unwrap();
    let loaded = Checkpoint::load(&path).unwrap();
    assert_eq!(loaded.text("note"), Some("a \"quoted\" line\n"));
    assert_eq!(loaded.text("other"), None);
    let double = loaded.get("double", &[2], DType::F64).unwrap();
    assert_eq!(double.to_vec1::<f64>().unwrap(), [1.5, f64::MIN_POSITIVE]);
    let count = loaded.get("count", &[1], DType::U32).unwrap();
    assert_eq!(count.to_vec1::<u32>().unwrap(), [7]);
    let view = loaded.get("view", &[3, 2], DType::F32).unwrap();
    assert_eq!(
        view.to_vec2::<f32>().unwrap(),
        [[0., 3.], [1., 4.], [2., 5.]]
    );
}

#[test]
fn a_file_cut_anywhere_is_corrupt() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let mut checkpoint = Checkpoint::new();
    checkpoint.insert("a", &Tensor::new(&[1f32, 2., 3.], &Device::Cpu).unwrap());
    checkpoint.insert_text("step", "12");
    checkpoint.describe("layer", "norm", "rms");
    checkpoint.save(&path).unwrap();
    let bytes = fs::read(&path).unwrap();
    for length in 0..bytes.len() {
        fs::write(&path, &bytes[..length]).unwrap();
        match Checkpoint::load(&path) {
            Err(Error::Corrupt { path: named, .. }) => assert_eq!(named, path),
            other => panic!("{length} of {} bytes: {other:?}", bytes.len()),
        }
    }
    let mut longer = bytes.clone();
    longer.push(0);
    fs::write(&path, &longer).unwrap();
    assert!(matches!(
        Checkpoint::load(&path),
        Err(Error::Corrupt { .. })
    ));
    fs::write(&path, vec![0xff; 4096]).unwrap();
    assert!(matches!(
        Checkpoint::load(&path),
        Err(Error::Corrupt { .. })
    ));
}

/// The checkpoint of a model with one tensor replaced, or left out.
fn tampered(name: &str, replacement: Option<Tensor>) -> Checkpoint {
    let mut whole = Checkpoint::new();
    model(1).export("", &mut whole);
    let mut checkpoint = Checkpoint::new();
    for (known, tensor) in whole.tensors() {
        if known != name {
            checkpoint.insert(known, tensor);
        }
    }
    if let Some(tensor) = replacement {
        checkpoint.insert(name, &tensor);
    }
    checkpoint
}

#[test]
fn a_wrong_tensor_changes_nothing() {
    // This is the last parameter in the order of creation. A load that sets parameters as it goes would have changed
    // all the others.
    let name = "net.4.linear_left.bias";
    let target = model(2);
    let before = bits(&target);

    match target.import("", &tampered(name, None)) {
        Err(Error::MissingTensor { tensor }) => assert_eq!(tensor, name),
        other => panic!("{other:?}"),
    }
    let tensor = Tensor::zeros((1, 2, 1), DType::F32, &Device::Cpu).unwrap();
    match target.import("", &tampered(name, Some(tensor))) {
        Err(Error::Shape {
            tensor,
            expected,
            got,
        }) => {
            assert_eq!(tensor, name);
            assert_eq!(expected, "[1, 1, 1]");
            assert_eq!(got, [1, 2, 1]);
        }
        other => panic!("{other:?}"),
    }
    let tensor = Tensor::zeros((1, 1, 1), DType::F64, &Device::Cpu).unwrap();
    match target.import("", &tampered(name, Some(tensor))) {
        Err(Error::StoredType {
            tensor,
            expected,
            got,
        }) => {
            assert_eq!(tensor, name);
            assert_eq!((expected, got), (DType::F32, DType::F64));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(bits(&target), before);
}

#[test]
fn paths_that_cannot_be_used_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no/such/folder/model");
    match model(1).save(&missing) {
        Err(Error::Write { path, .. }) => assert_eq!(path, missing),
        other => panic!("{other:?}"),
    }
    // A folder cannot be replaced by a file.
    let occupied = folder.path().join("occupied");
    fs::create_dir(&occupied).unwrap();
    fs::write(occupied.join("inside"), "kept").unwrap();
    assert!(matches!(
        model(1).save(&occupied),
        Err(Error::NotAFile { kind: "folder", .. })
    ));
    assert_eq!(fs::read_to_string(occupied.join("inside")).unwrap(), "kept");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    match Checkpoint::load(&missing) {
        Err(Error::Read { path, .. }) => assert_eq!(path, missing),
        other => panic!("{other:?}"),
    }
}

/// The parameters of a layer with a norm, under the name `layer`, and what its `Debug` says.
fn normed(signature: [usize; 3], norm: Norm, seed: u64) -> (Parameters, String) {
    let [p, q, r] = signature;
    let algebra = Algebra::new(Signature::of(p, q, r)).unwrap();
    let parameters = Parameters::seeded(seed);
    let vb = parameters.builder(DType::F32, &Device::Cpu);
    let options = FlashCliffordOptions {
        norm,
        ..FlashCliffordOptions::default()
    };
    let layer = FlashCliffordLayer::new(algebra, 3, options, vb.pp("layer")).unwrap();
    (parameters, format!("{layer:?}"))
}

/// Saves the weights of one layer, and loads them into another. Nothing may change if that fails.
fn carry(
    (from, _): (Parameters, String),
    (to, _): (Parameters, String),
    prefix: &str,
) -> Result<(), Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights");
    let mut checkpoint = Checkpoint::new();
    from.export(prefix, &mut checkpoint);
    checkpoint.insert_text("note", "kept");
    checkpoint.save(&path).unwrap();
    let loaded = Checkpoint::load(&path).unwrap();
    assert_eq!(loaded.text("note"), Some("kept"));
    let values = |parameters: &Parameters| -> Vec<Vec<f32>> {
        let variables = parameters.variables().into_iter();
        let flat = variables.map(|(_, var)| var.flatten_all().unwrap());
        flat.map(|var| var.to_vec1().unwrap()).collect()
    };
    let before = values(&to);
    assert_ne!(before, values(&from));
    let result = to.restore(prefix, &loaded);
    let expected = match result {
        Ok(()) => values(&from),
        Err(_) => before,
    };
    assert_eq!(values(&to), expected);
    result
}

const SPACE: [usize; 3] = [3, 0, 0];
const SPACETIME: [usize; 3] = [1, 3, 0];

#[test]
fn weights_of_another_norm_are_refused() {
    for prefix in ["", "model."] {
        for stored in Norm::ALL {
            for own in Norm::ALL {
                let result = carry(
                    normed(SPACETIME, stored, 1),
                    normed(SPACETIME, own, 2),
                    prefix,
                );
                match result {
                    Ok(()) => assert_eq!(stored, own),
                    Err(Error::StoredChoice {
                        layer,
                        choice,
                        expected,
                        got,
                    }) => {
                        assert_ne!(stored, own);
                        assert_eq!(layer, format!("{prefix}layer"));
                        assert_eq!(choice, "norm");
                        assert_eq!((&*expected, &*got), (own.name(), stored.name()));
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }
    let error = carry(
        normed(SPACETIME, Norm::Rms, 1),
        normed(SPACETIME, Norm::Invariant, 2),
        "",
    );
    assert_eq!(
        error.unwrap_err().to_string(),
        "layer: expected weights of norm invariant, got weights of norm rms; make the layer with norm rms"
    );
}

/// If all vectors square to one sign, the Euclidean norm is the invariant one.
#[test]
fn one_norm_under_two_names_is_accepted() {
    let space = |norm, seed| normed(SPACE, norm, seed);
    carry(space(Norm::Rms, 1), space(Norm::Invariant, 2), "").unwrap();
    carry(space(Norm::Invariant, 1), space(Norm::Rms, 2), "").unwrap();
    assert!(carry(space(Norm::None, 1), space(Norm::Rms, 2), "").is_err());
}

#[test]
fn weights_of_another_algebra_are_refused() {
    let of = |signature, seed| normed(signature, Norm::None, seed);
    match carry(of(SPACE, 1), of([2, 1, 0], 2), "") {
        Err(Error::StoredChoice {
            choice,
            expected,
            got,
            ..
        }) => {
            assert_eq!((&*choice, &*expected, &*got), ("algebra", "cl210", "cl300"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn weights_that_do_not_say_their_norm_are_accepted() {
    let (from, _) = normed(SPACETIME, Norm::Rms, 1);
    let (to, _) = normed(SPACETIME, Norm::Invariant, 2);
    let mut bare = Checkpoint::new();
    for (name, var) in from.variables() {
        bare.insert(name, &var);
    }
    to.restore("", &bare).unwrap();
    // Choices that the checkpoint does not say are not compared.
    bare.describe("layer", "algebra", "cl130");
    to.restore("", &bare).unwrap();
    bare.describe("layer", "norm", "rms");
    assert!(matches!(
        to.restore("", &bare),
        Err(Error::StoredChoice { .. })
    ));
}

#[test]
fn layers_say_what_their_weights_belong_to() {
    let mut checkpoint = Checkpoint::new();
    model(1).export("model.", &mut checkpoint);
    let described = |layer, choice| checkpoint.described(layer, choice);
    assert_eq!(described("model.net.0", "algebra"), Some("cl300"));
    assert_eq!(described("model.net.0", "norm"), Some("grade_norm"));
    assert_eq!(described("model.net.1", "invariant"), Some("mag2"));
    assert_eq!(described("model.net.1", "norm"), None);
    assert_eq!(described("net.0", "algebra"), None);

    let (_, shown) = normed(SPACETIME, Norm::Rms, 1);
    assert!(
        shown.contains("norm: Rms") && shown.contains("p: 1, q: 3"),
        "{shown}"
    );

    // A layer without a name has that of the prefix.
    let parameters = Parameters::seeded(1);
    let vb = parameters.builder(DType::F32, &Device::Cpu);
    let algebra = Algebra::new(Signature::of(3, 0, 0)).unwrap();
    MVSiLU::new(algebra, 2, Invariant::Norm, vb).unwrap();
    let mut checkpoint = Checkpoint::new();
    parameters.export("gate.", &mut checkpoint);
    assert_eq!(checkpoint.described("gate", "invariant"), Some("norm"));
    assert_eq!(parameters.names(), ["a", "b"]);
}
