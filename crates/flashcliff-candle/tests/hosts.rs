//! Two hosts that share no files: processes with their own folders, which know rank 0 by different names.
//!
//! What a run on several hosts exchanges without a GPU is exchanged here: ranks meet by the variables of their environment, rank 0 sends a
//! state that it alone has as a file, both compute shares of a batch, rank 0 takes the mean and saves, and a process that is killed is
//! noticed on the other host.
#![cfg(target_os = "linux")]

use std::env;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use candle_core::{DType, Device, Tensor};
use flashcliff_candle::checkpoint::Checkpoint;
use flashcliff_candle::distributed::{Links, Timing, World};
use flashcliff_candle::models::{Architecture, Model};
use flashcliff_candle::objective::Objective;

/// The variable that makes a process of this test a host, with what it does after its share of the batch.
const HOST: &str = "FLASHCLIFF_TEST_HOST";
const STATE: &str = "state.safetensors";
/// The samples of the batch.
const ROWS: usize = 8;
/// The exit status of a host that has lost the other.
const LOST: i32 = 5;

fn model(seed: u64) -> Model {
    Model::new(Architecture::Hulls, seed, DType::F64).unwrap()
}

/// The error of some rows of the batch, and its gradients, one after the other.
fn share(model: &Model, first: usize, rows: usize) -> Vec<f64> {
    let wave = |len: usize, shape: &[usize]| {
        let data: Vec<f64> = (0..len).map(|at| (at as f64 * 0.37).sin()).collect();
        Tensor::from_vec(data, shape, &Device::Cpu).unwrap()
    };
    let whole = [wave(ROWS * 80, &[ROWS, 16, 5]), wave(ROWS, &[ROWS])];
    let batch = whole.map(|tensor| tensor.narrow(0, first, rows).unwrap());
    let mut objective = Objective::new(model, rows, 1).unwrap();
    let loss = objective.evaluate(&batch).unwrap();
    let mut all = vec![loss.to_scalar::<f64>().unwrap()];
    for (_, var) in model.parameters().variables() {
        let gradient = objective.gradient_of(&var).unwrap().unwrap();
        all.extend(gradient.flatten_all().unwrap().to_vec1::<f64>().unwrap());
    }
    all
}

fn bytes(numbers: &[f64]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

/// One of the hosts, in the folder that it was started in.
#[test]
#[ignore = "one of the processes of the test of this file"]
fn host() {
    let Ok(then) = env::var(HOST) else {
        return;
    };
    let world = World::from_environment().unwrap().unwrap();
    let lost = |fault: &_| {
        eprintln!("{fault}");
        std::process::exit(LOST);
    };
    let links = Links::join(&world, "the same", Timing::default(), &|| false, lost).unwrap();
    let model = model(world.rank as u64);
    if world.rank == 0 {
        model.import("", &Checkpoint::load(STATE).unwrap()).unwrap();
        links.send(&fs::read(STATE).unwrap()).unwrap();
    } else {
        let (rank, state) = links.receive().unwrap();
        assert_eq!(rank, 0);
        let state = Checkpoint::from_bytes(&state, Path::new(STATE)).unwrap();
        model.import("", &state).unwrap();
    }
    let rows = ROWS / world.size;
    let own = share(&model, world.rank * rows, rows);
    if world.rank > 0 {
        links.send(&bytes(&own)).unwrap();
        // Rank 0 says when it has saved, or this process is killed before.
        let (_, message) = links.receive().unwrap();
        assert_eq!(message, b"saved");
        links.finish();
        return;
    }
    let (_, other) = links.receive().unwrap();
    let other = other
        .chunks_exact(8)
        .map(|number| f64::from_le_bytes(number.try_into().unwrap()));
    let mean: Vec<f64> = own.iter().zip(other).map(|(a, b)| (a + b) / 2.0).collect();
    fs::write("mean", bytes(&mean)).unwrap();
    if then == "waits" {
        // The other host goes away meanwhile.
        println!("waiting");
        let _ = links.receive();
        unreachable!("the other host is still there");
    }
    links.expect_end();
    links.send(b"saved").unwrap();
    links.finish();
}

/// Starts a host.
fn start(rank: usize, address: &str, port: u16, folder: &Path, then: &str) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "host", "--ignored", "--nocapture"]);
    // A host has one process here, so its local rank is 0.
    let variables = [
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", "2".to_owned()),
        ("LOCAL_RANK", "0".to_owned()),
        ("MASTER_ADDR", address.to_owned()),
        ("MASTER_PORT", port.to_string()),
    ];
    command
        .env(HOST, then)
        .envs(variables)
        .env_remove("TORCHELASTIC_USE_AGENT_STORE");
    command
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

#[test]
fn hosts_without_common_files_train_together() {
    for then in ["ends", "waits"] {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [zero, one] = folders.each_ref().map(tempfile::TempDir::path);
        let started = model(7);
        let mut state = Checkpoint::new();
        started.export("", &mut state);
        state.save(zero.join(STATE)).unwrap();
        let free = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        // Rank 0 knows itself by a name that is its loopback. The other host knows it by another address.
        let mut other = start(1, "127.0.0.2", port, one, then);
        let leads = start(0, "127.1", port, zero, then);
        if then == "waits" {
            // The mean is there once rank 0 waits.
            while !zero.join("mean").exists() {
                assert!(
                    other.try_wait().unwrap().is_none(),
                    "the other host has ended"
                );
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            other.kill().unwrap();
        }
        let (leads, other) = (
            leads.wait_with_output().unwrap(),
            other.wait_with_output().unwrap(),
        );
        match then {
            "waits" => {
                assert_eq!(leads.status.code(), Some(LOST), "{}", text(&leads));
                assert!(text(&leads).contains("rank 1 is lost"), "{}", text(&leads));
            }
            _ => {
                assert!(leads.status.success(), "{}", text(&leads));
                assert!(other.status.success(), "{}", text(&other));
            }
        }
        assert_eq!(
            fs::read_dir(one).unwrap().count(),
            0,
            "the other host writes nothing"
        );
        let mean = fs::read(zero.join("mean")).unwrap();
        let mean = mean
            .chunks_exact(8)
            .map(|number| f64::from_le_bytes(number.try_into().unwrap()));
        let expected = share(&started, 0, ROWS);
        assert_eq!(mean.len(), expected.len());
        let largest = expected
            .iter()
            .fold(0.0, |most: f64, number| most.max(number.abs()));
        for (mean, expected) in mean.zip(expected) {
            assert!(
                (mean - expected).abs() <= 1e-12 * largest,
                "{mean}, {expected}"
            );
        }
    }
}
