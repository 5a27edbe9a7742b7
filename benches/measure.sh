#!/usr/bin/env bash
# Measures what `flashcliff` says about a device.
#
# usage: benches/measure.sh cpu|cuda OUT [PART...]
#
# The parts, all if none is named: profile, networks, layers, operators (bench). Each writes JSON files to the folder OUT, and its tables to
# standard output. Run it on a machine that does nothing else. PROGRAM names the program, if it is not
# target/release/flashcliff; for a GPU it is built with `--features cuda`.
set -uo pipefail

usage="usage: measure.sh cpu|cuda OUT [profile|networks|layers|operators...]"
device=${1:?$usage}
out=${2:?$usage}
shift 2
parts=${*:-profile networks layers operators}
program=${PROGRAM:-target/release/flashcliff}
tasks=(hulls regression volumes gravity)
mkdir -p "$out"
export FLASHCLIFF_CACHE_DIR=${FLASHCLIFF_CACHE_DIR:-$out/cache}
failed=0

# Runs a command, says how long it took, and goes on if it fails.
step() {
    local start=$SECONDS
    echo "== flashcliff $*" >&2
    "$program" "$@" --quiet --device "$device"
    local status=$?
    echo "== exit status $status after $((SECONDS - start)) s" >&2
    if [ "$status" -ne 0 ]; then failed=1; fi
}

for part in $parts; do
    case $part in
        profile)
            for task in "${tasks[@]}"; do
                step profile "$task" --json "$out/profile-$task-$device.json"
            done
            ;;
        networks) step bench --json "$out/bench-networks-$device.json" "${tasks[@]/#/--network=}" ;;
        layers)
            layers=$("$program" bench --layer '?' 2>&1 | sed -n 's/.*possible values: \(.*\)].*/\1/p' | tr -d ' ' | tr ',' ' ')
            read -ra names <<<"$layers"
            step bench --json "$out/bench-layers-$device.json" "${names[@]/#/--layer=}"
            ;;
        operators)
            operators=(sgp_norm fcgp_norm mv_linear mv_linear_sgp_norm steerable_product product sandwich gate norm)
            step bench --json "$out/bench-operators-$device.json" "${operators[@]/#/--operator=}"
            ;;
        *)
            echo "$usage" >&2
            exit 2
            ;;
    esac
done
exit "$failed"
