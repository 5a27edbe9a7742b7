#!/usr/bin/env bash
# Runs the bundle on a machine with an NVIDIA driver: the tests, candle's too if the bundle has them, and the
# tools of compute-sanitizer. Logs and JSON go to a folder; the exit status is 0 if nothing failed. TOOLS may name some of
# the tools, as in TOOLS='memcheck racecheck'.
set -u

usage() {
    echo "usage: $0 OUTDIR [tests|sanitize|all]" >&2
    exit 2
}

here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 1 ] || usage
mkdir -p "$1" || exit 2
out=$(cd "$1" && pwd)
part=${2:-all}
case "$part" in tests | sanitize | all) ;; *) usage ;; esac

# Programs are compressed in the bundle; they look for the commit beside themselves.
bin=$(mktemp -d "$out/bin.XXXXXX") || exit 2
trap 'rm -rf "$bin"' EXIT
cp "$here/COMMIT" "$bin/" || exit 2
for program in cuda-tests tuner-tests candle-tests; do
    # candle's are there if they were asked for.
    [ "$program" = candle-tests ] && [ ! -e "$here/$program.gz" ] && continue
    gzip -dc "$here/$program.gz" >"$bin/$program" && chmod +x "$bin/$program" || exit 2
done

summary="$out/summary.txt"
: >"$summary"
failures=0

# note NAME RESULT DETAIL: adds a line to the summary.
note() {
    printf '%-28s %-8s %s\n' "$1" "$2" "$3" >>"$summary"
    [ "$2" = failed ] && failures=$((failures + 1))
    return 0
}

# find_library NAME VERSIONS WITHOUT: finds a library of the CUDA toolkit or of PyTorch's packages. The loader may not
# know its folder.
find_library() {
    local name=$1 versions=$2 without=$3 candidate folder
    ldconfig -p 2>/dev/null | grep -q "$name\.so\.$versions" && return 0
    folder=$(python3 -c 'import importlib.util as u; s = u.find_spec("nvidia"); print(*s.submodule_search_locations)' 2>/dev/null || true)
    # $versions is a pattern, so it is not quoted.
    for candidate in ${folder:+"$folder"/*/lib/"$name".so.$versions} \
        /usr/local/cuda*/lib64/"$name".so.$versions /usr/local/cuda*/targets/*/lib/"$name".so.$versions; do
        if [ -e "$candidate" ]; then
            candidate=$(dirname "$candidate")
            export LD_LIBRARY_PATH="$candidate${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
            return 0
        fi
    done
    echo "no $name found: $without will fail" >&2
}

find_libraries() {
    find_library libcublasLt '1[23]' 'tests of matrix products'
    if [ -e "$bin/candle-tests" ]; then
        find_library libcublas '1[23]' "candle's tests"
        find_library libcurand 10 "candle's tests"
    fi
}

find_sanitizer() {
    local candidate
    for candidate in "${COMPUTE_SANITIZER:-}" "$(command -v compute-sanitizer || true)" \
        /usr/local/cuda*/bin/compute-sanitizer /opt/nvidia/cuda*/bin/compute-sanitizer; do
        if [ -n "$candidate" ] && [ -x "$candidate" ]; then
            printf '%s' "$candidate"
            return 0
        fi
    done
    return 1
}

last() { grep -E "$1" "$2" 2>/dev/null | tail -n 1; }

# test_program NAME PROGRAM LOG: runs tests. None may be skipped because there is no GPU.
test_program() {
    local name=$1 program=$2 log=$3
    FLASHCLIFF_REQUIRE_GPU=1 "$program" >"$log" 2>&1
    local status=$?
    local result
    result=$(last '^test result:' "$log")
    if [ $status -eq 0 ] && [ -n "$result" ]; then
        note "$name" ok "$result"
    else
        note "$name" failed "${result:-exit status $status}, see $(basename "$log")"
    fi
    grep '^skipped:' "$log" | while read -r line; do note "$name, skipped" skipped "$line"; done
    return 0
}

run_tests() {
    FLASHCLIFF_TEST_JSON="$out/tests.json" test_program tests "$bin/cuda-tests" "$out/tests.log"
    test_program 'tests of the tuner' "$bin/tuner-tests" "$out/tuner-tests.log"
    if [ -e "$bin/candle-tests" ]; then
        test_program 'tests of candle' "$bin/candle-tests" "$out/candle-tests.log"
    else
        note 'tests of candle' skipped 'not in this bundle: cargo xtask gpu-bundle --candle'
    fi
}

# errors_of LOG: the number of errors that the tool counted.
errors_of() { sed -n 's/.*ERROR SUMMARY: \([0-9]*\) error.*/\1/p; s/.*RACECHECK SUMMARY: \([0-9]*\) hazard.*/\1/p' "$1" | tail -n 1; }

# sanitize TOOL: the tool must report a planted bug, and must not report its clean twin or our kernels.
sanitize() {
    local tool=$1 log errors kind
    for kind in bug clean; do
        log="$out/$tool-$kind.log"
        "$sanitizer" --tool "$tool" "$here/planted/$tool" "$kind" >"$log" 2>&1
        errors=$(errors_of "$log")
        if [ -z "$errors" ]; then
            note "$tool, planted $kind" failed "the tool gave no summary, see $(basename "$log")"
        elif [ "$kind" = bug ] && [ "$errors" -eq 0 ]; then
            note "$tool, planted bug" failed 'not reported'
        elif [ "$kind" = clean ] && [ "$errors" -ne 0 ]; then
            note "$tool, planted clean" failed "$errors errors where there are none"
        else
            note "$tool, planted $kind" ok "$errors reported"
        fi
    done
    log="$out/$tool.log"
    # initcheck does not see the writes of bulk copies.
    local read_back=1
    [ "$tool" = initcheck ] && read_back=0
    FLASHCLIFF_REQUIRE_GPU=1 FLASHCLIFF_READ_BACK=$read_back "$sanitizer" --tool "$tool" --error-exitcode 99 \
        "$bin/cuda-tests" sanitize:: --test-threads 1 >"$log" 2>&1
    local status=$?
    errors=$(errors_of "$log")
    local passed
    passed=$(last '^test result:' "$log")
    if [ $status -eq 0 ] && [ "$errors" = 0 ] && [ -n "$passed" ]; then
        note "$tool, kernels" ok "0 reported; $passed"
    else
        note "$tool, kernels" failed "${errors:-no summary} reported; ${passed:-exit status $status}, see $(basename "$log")"
    fi
}

run_sanitizers() {
    if ! sanitizer=$(find_sanitizer); then
        note sanitizers failed 'no compute-sanitizer: put it into PATH, or its path into COMPUTE_SANITIZER'
        return 0
    fi
    local tool
    for tool in ${TOOLS:-memcheck racecheck initcheck synccheck}; do sanitize "$tool"; done
}

find_libraries
case "$part" in
tests) run_tests ;;
sanitize) run_sanitizers ;;
all)
    run_tests
    run_sanitizers
    ;;
esac

printf '\ncommit %s\n' "$(cat "$here/COMMIT")"
cat "$summary"
awk 'BEGIN { print "[" }
    { name = substr($0, 1, 28); sub(/ +$/, "", name); result = substr($0, 30, 8); sub(/ +$/, "", result)
      detail = substr($0, 39); gsub(/\\/, "\\\\", detail); gsub(/"/, "\\\"", detail)
      printf "%s  {\"part\": \"%s\", \"result\": \"%s\", \"detail\": \"%s\"}", (NR > 1 ? ",\n" : ""), name, result, detail }
    END { print "\n]" }' "$summary" >"$out/summary.json"
echo "$failures failed; logs and JSON are in $out"
[ "$failures" -eq 0 ]
