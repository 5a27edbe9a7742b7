#!/usr/bin/env bash
# Measures what `flashcliff` says about a device, and how far its predictions are from it: bench, calibrate, predict --check and profile.
#
# usage: benches/measure.sh cpu|cuda OUT [PROGRAM]
#
# Writes JSON files to the folder OUT, and the tables to standard output. Run it on a machine that does nothing else. PROGRAM is
# target/release/flashcliff if absent; for a GPU it is built with `--features cuda`.
set -uo pipefail

device=${1:?usage: measure.sh cpu|cuda OUT [PROGRAM]}
out=${2:?usage: measure.sh cpu|cuda OUT [PROGRAM]}
program=${3:-target/release/flashcliff}
mkdir -p "$out"
export FLASHCLIFF_CACHE_DIR=${FLASHCLIFF_CACHE_DIR:-$out/cache}
failed=0

# Runs a command, says how long it took, and goes on if it fails: 3 means that a prediction missed its goal.
step() {
    local start=$SECONDS
    echo "== flashcliff $*" >&2
    "$program" "$@" --quiet --device "$device"
    local status=$?
    echo "== exit status $status after $((SECONDS - start)) s" >&2
    if [ "$status" -ne 0 ] && [ "$status" -ne 3 ]; then failed=1; fi
}

step calibrate
step predict --check --json >"$out/predict-operators-$device.json"
step predict hulls regression volumes gravity --check
step predict hulls regression volumes gravity --check --json >"$out/predict-steps-$device.json"
for task in hulls regression volumes gravity; do
    step profile "$task" --json "$out/profile-$task-$device.json"
done
names=(hulls regression volumes gravity)
step bench --json "$out/bench-networks-$device.json" "${names[@]/#/--network=}"
layers=(MVLinear GradeNorm MVLayerNorm MVSiLU PointEmbedding SteerableGeometricProduct FullyConnectedSteerableGeometricProduct
    FlashCliffordLayer FlashCliffordLayer.fully_connected EquiLinear EquiLayerNorm ScalarGate GeometricBilinear SelfAttention Block
    rotors::exp rotors::log rotors::inverse rotors::normalized rotors::interpolate rotors::action)
step bench --json "$out/bench-layers-$device.json" "${layers[@]/#/--layer=}"
exit "$failed"
