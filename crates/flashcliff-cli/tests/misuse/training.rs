//! Runs that cannot be started or continued.

use safetensors::Dtype;

use crate::row::Make::{Bytes, Cut, Folder, Tensors};
#[cfg(unix)]
use crate::row::Make::{Link, Mode};
use crate::row::{GOOD, Row, row};

#[rustfmt::skip]
pub(crate) const ROWS: &[Row] = &[
    // Settings.
    row(&[], "train", 2, &["<TASK>"]),
    row(&[], "train poetry", 2, &["poetry", "hulls"]),
    row(&[], "train hulls regression", 2, &["unexpected argument 'regression'"]),
    row(&[], "train hulls --samples 0", 1, &["--samples", "from 1 to", "got 0"]),
    row(&[], "train hulls --samples -1", 2, &["-1"]),
    row(&[], "train hulls --samples 1.5", 2, &["--samples", "1.5"]),
    row(&[], "train hulls --samples 99999999999999", 1, &["--samples", "99999999999999"]),
    row(&[], "train hulls --val-samples 0", 2, &["--val-samples"]),
    row(&[], "train hulls --val-samples 99999999999999", 1, &["--val-samples", "from 1 to"]),
    row(&[], "train hulls --test-samples 99999999999999", 1, &["--test-samples", "from 1 to"]),
    row(&[], "train hulls --steps 0", 2, &["--steps"]),
    row(&[], "train hulls --steps 99999999999", 1, &["--steps", "from 1 to"]),
    row(&[], "train hulls --batch 0", 2, &["--batch"]),
    row(&[], "train hulls --batch 99999999999", 1, &["--batch", "from 1 to"]),
    row(&[], "train hulls --save-every 0", 2, &["--save-every"]),
    row(&[], "train hulls --save-every often", 2, &["--save-every", "often"]),
    row(&[], "train hulls --seed x", 2, &["--seed", "x"]),
    row(&[], "train hulls --seed -1", 2, &["-1"]),
    row(&[], "train hulls --seed 99999999999999999999", 2, &["--seed"]),
    row(&[], "train hulls --lr 0", 1, &["--lr", "above 0", "got 0"]),
    row(&[], "train hulls --lr -1", 1, &["--lr", "above 0", "got -1"]),
    row(&[], "train hulls --lr nan", 1, &["--lr", "NaN"]),
    row(&[], "train hulls --lr inf", 1, &["--lr", "inf"]),
    row(&[], "train hulls --lr fast", 2, &["--lr", "fast"]),
    row(&[], "train hulls --optimizer sgd", 2, &["sgd", "adamw"]),
    row(&[], "train hulls --weight-decay -1", 1, &["--weight-decay", "from 0 up", "got -1"]),
    row(&[], "train hulls --weight-decay inf", 1, &["--weight-decay", "inf"]),
    row(&[], "train hulls --clip-norm 0", 1, &["--clip-norm", "above 0", "got 0"]),
    row(&[], "train hulls --clip-norm 1 --clip adaptive", 2, &["--clip-norm <NORM>", "cannot be used with", "--clip <HOW>"]),
    row(&[], "train hulls --precision tf32", 1, &["--precision tf32", "expected highest on the CPU", "--device cuda"]),
    row(&[], "train hulls --precision bf16", 1, &["--precision bf16", "expected highest on the CPU", "--device cuda"]),
    row(&[], "train gravity --precision f16", 1, &["--precision f16", "expected highest on the CPU", "--device cuda"]),
    row(&[], "train hulls --precision half", 2, &["--precision <PRECISION>", "highest", "tf32", "bf16", "f16"]),
    row(&[], "train hulls --accumulate 0", 2, &["--accumulate <N>"]),
    row(&[], "train hulls --accumulate 3", 1, &["--accumulate", "divides the 128 samples of a batch", "got 3"]),
    row(&[], "train hulls --clip-norm nan", 1, &["--clip-norm", "NaN"]),
    row(&[], "train hulls --schedule linear", 2, &["linear", "half-cosine"]),
    row(&[], "train hulls --steps 10 --warmup 11", 1, &["--warmup", "at most the 10 steps", "got 11"]),
    row(&[], "train hulls --warmup -1", 2, &["-1"]),
    row(&[], "train gravity --dropout 1", 1, &["--dropout", "0 <= p < 1", "got 1"]),
    row(&[], "train gravity --dropout -0.1", 1, &["--dropout", "0 <= p < 1", "got -0.1"]),
    row(&[], "train gravity --dropout nan", 1, &["--dropout", "0 <= p < 1", "NaN"]),
    row(&[], "train gravity --dropout much", 2, &["--dropout", "much"]),
    row(&[], "train hulls --dropout 0.1", 1, &["--dropout", "the network of hulls has no dropout", "got 0.1"]),
    row(&[], "train hulls --capture maybe", 2, &["maybe", "auto"]),
    row(
        &[],
        "train volumes --samples 8 --steps 2 --batch 4 --val-samples 4 --test-samples 4 --capture on --out out",
        1,
        &["--capture on", "the CPU has no graphs"],
    ),
    row(&[], "train regression --samples 1 --out out", 1, &["at least 2 samples, got 1"]),
    row(&[], "train nbody --data-seed 4294967296 --out out", 1, &["seeds up to 4294967295", "got 4294967296"]),
    row(&[], "train hulls --device tpu", 2, &["cpu, cuda or cuda:N"]),
    row(&[], "train hulls --device cuda:100000 --out out", 1, &["CUDA"]),
    row(
        &[],
        "train gravity --samples 4194304 --val-samples 4194304 --test-samples 4194304 --batch 4194304 --out out",
        1,
        &["12582912 samples in batches of 4194304", "of memory", "available"],
    ),
    // The plan of a network says what its steps take, before a folder is made.
    row(
        &[],
        "train hulls --samples 4194304 --val-samples 1 --test-samples 1 --batch 4194304 --out out",
        1,
        &["training hulls: the memory of a batch of 4194304", "of memory", "available", "the largest batch that fits"],
    ),
    row(
        &[],
        "profile hulls --batch 4194304",
        1,
        &["training hulls: the memory of a batch of 4194304", "the largest batch that fits"],
    ),
    // Several GPUs.
    row(&[], "train hulls --gpus 0", 2, &["--gpus"]),
    row(&[], "train hulls --gpus two", 2, &["--gpus", "two"]),
    row(&[], "train hulls --gpus 2", 1, &["2 processes", "--device cuda", "got cpu"]),
    row(&[], "train hulls --gpus 1", 1, &["--device cuda", "got cpu"]),
    row(&[], "train hulls --gpus 2 --device cuda:1", 1, &["--device cuda", "got cuda:1"]),
    row(&[], "train hulls --gpus 3 --device cuda", 1, &["--batch", "a multiple of 3", "got 128"]),
    row(&[], "train hulls --gpus 2 --device cuda --samples 99", 1, &["--samples", "a multiple of 2", "got 99"]),
    row(&[], "train hulls --gpus 2 --device cuda --accumulate 128", 1, &["--accumulate", "the 64 samples", "got 128"]),
    row(&[], "train hulls --gpus 128 --device cuda --out out", 1, &["CUDA"]),
    // Folders.
    row(&[GOOD], "train hulls --out in", 1, &["cannot write in"]),
    row(&[GOOD], "train hulls --out in/below", 1, &["cannot write in/below"]),
    row(&[Folder("out"), Bytes("out/metrics.json", b"{}")], "train hulls --out out", 1, &["metrics.json of an earlier run", "--overwrite"]),
    row(&[Folder("out"), Bytes("out/state.safetensors", b"")], "train hulls --out out", 1, &["state.safetensors of an earlier run", "--resume"]),
    row(&[Folder("out"), Bytes("out/best.safetensors", b"")], "train hulls --out out", 1, &["best.safetensors of an earlier run"]),
    row(&[Folder("out"), Bytes("out/curve.svg", b"")], "train hulls --out out", 1, &["curve.svg of an earlier run"]),
    row(&[Folder("out"), Folder("out/curve.svg")], "train hulls --overwrite --out out", 1, &["cannot write out/curve.svg", "got a folder"]),
    #[cfg(unix)]
    row(&[Folder("out"), Link("out/metrics.json", "nowhere")], "train hulls --out out", 1, &["metrics.json of an earlier run"]),
    #[cfg(unix)]
    row(
        &[Folder("out"), Bytes("out/metrics.json", b"{}"), Mode("out/metrics.json", 0o444)],
        "train hulls --overwrite --out out",
        1,
        &["cannot write out/metrics.json", "mode 444"],
    ),
    // States.
    row(&[], "train hulls --resume no/such/state", 1, &["cannot read no/such/state"]),
    row(&[], "train hulls --resume no/such/state --out out", 1, &["cannot read no/such/state"]),
    #[cfg(target_os = "linux")]
    row(&[], "train hulls --resume /dev/zero --out out", 1, &["/dev/zero: expected a complete safetensors file"]),
    row(&[Folder("state")], "train hulls --resume state", 1, &["cannot read state"]),
    row(&[Bytes("state", b"")], "train hulls --resume state", 1, &["state: expected a complete safetensors file"]),
    row(&[Bytes("state", b"{\"step\": 12}")], "train hulls --resume state", 1, &["state: expected a complete safetensors file"]),
    row(&[GOOD, Cut("in", 100)], "train hulls --resume in --out out", 1, &["in: expected a complete safetensors file"]),
    row(&[GOOD], "train hulls --resume in", 1, &["in: expected the state of a training run, got no settings"]),
    row(&[Tensors("in", Dtype::I32, &[("adam.step", &[3])])], "train hulls --resume in", 1, &["in: expected"]),
    row(&[], "train hulls --resume", 2, &["--resume <FILE>"]),
];
