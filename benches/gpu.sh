#!/usr/bin/env bash
# Measures what `benches/README.md` says of GPUs, all at one commit.
#
# usage: benches/gpu.sh COMMIT OUT [PART...]
#
# Run it on a machine with one GPU that does nothing else, with the package installed with CUDA, and beside it PyTorch
# Geometric, JAX, Triton, the packages gatr and lgatr, and clones of the repositories below. Each part writes files of
# their names in benches/results to the folder OUT, and takes at most ten minutes; all take three quarters of an hour.
# Without PART all run. A part that fails does not stop the others. The file of operators has the repeats of each case
# too, which benches/results leaves out.
#
# | variable       | what                                                   | if not set             |
# |----------------|--------------------------------------------------------|------------------------|
# | PROGRAM        | the program, built with `--features cuda`              | target/release/flashcliff |
# | COMPILED       | the binary `compiled` of benches, built with `--features cuda` | target/release/compiled |
# | CLONES         | a folder with clones named as their repositories       | clones                 |
set -uo pipefail

usage="usage: gpu.sh COMMIT OUT [users|sweep|connected|operators|compiled|host|jax|triton|train|bodies|forces|messages|grids...]"
commit=${1:?$usage}
out=${2:?$usage}
shift 2
parts=${*:-users sweep connected operators compiled host jax triton train bodies forces messages grids}
program=${PROGRAM:-target/release/flashcliff}
compiled=${COMPILED:-target/release/compiled}
clones=${CLONES:-clones}
peers=$(dirname "$0")/peers
mkdir -p "$out"
export FLASHCLIFF_CACHE_DIR=${FLASHCLIFF_CACHE_DIR:-$out/cache}
failed=0

# Runs a command, and says how long it took.
step() {
    local start=$SECONDS
    echo "== $*" >&2
    "$@"
    local status=$?
    echo "== exit status $status after $((SECONDS - start)) s" >&2
    if [ "$status" -ne 0 ]; then failed=1; fi
}

# Runs a script of the peers, which writes a file.
peer() {
    local script=$1 file=$2
    shift 2
    step python3 "$peers/$script" "$@" --commit "$commit" --out "$out/$file"
}

for part in $parts; do
    case $part in
        users)
            peer transformers_gpu.py users-gpu.json --set users --samples 10 --budget-seconds 580 \
                --variants ours-graph-adamw,ours,package,ours-graph-adamw-items,ours-graph-adamw-autocast
            peer transformers_gpu.py packages-compiled-gpu-h200.json --set users --case slim-128,gatr-64x4,arteries-1x2000 \
                --variants package,package-compile
            ;;
        sweep)
            peer sweep_gpu.py gpu-h200-sweep.json --flash-clifford "$clones/flash-clifford" --ahead 14 --operators sgp,layer,steerable \
                --cgenn "$clones/clifford-group-equivariant-neural-networks" --points 1024x128,4096x512,8192x512 \
                --peer-commits "$(cat "$clones/COMMITS" 2>/dev/null)"
            ;;
        connected)
            few=1024x128,4096x512,8192x512
            peer sweep_gpu.py gpu-h200-fcgp.json --flash-clifford "$clones/flash-clifford" --ahead 14 --operators fcgp --points "$few" \
                --peer-commits "$(cat "$clones/COMMITS" 2>/dev/null)"
            peer sweep_gpu.py gpu-h200-fcgp-bf16.json --dtype bfloat16 --ahead 14 --operators fcgp --points "$few"
            peer sweep_gpu.py gpu-h200-blocks.json --baselines none --operators fcgp --dims 3 --points 4096x512,8192x512,4096x1024 \
                --block-mib 16 32 64 128 256
            ;;
        operators) step "$program" bench --device cuda --quiet --overwrite --json "$out/gpu-h200-operators.json" ;;
        compiled) step "$compiled" --out "$out/gpu-h200-compiled.json" ;;
        host) peer host_cost.py host-cost-gpu-h200.json --device cuda ;;
        jax) peer jax_gpu.py jax-gpu-h200.json --shapes 256x16,4096x32,1024x128,4096x512 --rounds 20 --calls 50 ;;
        triton) peer triton_gpu.py triton-gpu-h200.json --quick --rounds 20 ;;
        train)
            step python3 "$peers/train_gpu.py" "$program" --commit "$commit" --out "$out/train-gpu-h200.json"
            ;;
        bodies)
            # Short runs have the times of long ones.
            step "$program" data nbody "$out/nbody.safetensors" --overwrite
            ours=()
            for precision in highest tf32; do
                run="$out/bodies-$precision"
                step "$program" train nbody --device cuda --capture on --steps 8192 --precision "$precision" --quiet --overwrite --out "$run"
                name=${precision/highest/f32}
                ours+=(--ours "${name/tf32/TF32}=$run/metrics.json")
            done
            peer nbody_gpu.py nbody-gpu-h200.json "$clones/clifford-group-equivariant-neural-networks" "$out/nbody.safetensors" "${ours[@]}"
            ;;
        forces) peer forces_gpu.py forces-gpu-h200.json ;;
        messages) peer messages_gpu.py messages-gpu-h200.json ;;
        grids) peer convolution_gpu.py convolution-gpu-h200.json "$clones/cliffordlayers" ;;
        *)
            echo "$usage" >&2
            exit 2
            ;;
    esac
done
exit "$failed"
