#!/bin/bash
# Runs parts of the backend's checks on a machine with a card: bash run.sh [suite] [matrix] [bench] [soak] [beside] [start]
# Each part takes well under eight minutes. Numbers and logs go to $OUT, or to ./out; a table comes last.
cd "$(dirname "$0")" || exit 1
out=${OUT:-$PWD/out}; mkdir -p "$out"
export GANNET_TEST_DEVICE=card GANNET_GOLDENS="$PWD/goldens" GANNET_TEST_KERNELS="$PWD/kernels"
[ -d goldens ] || tar -xf goldens.tar
table=()

step() { # step NAME SECONDS COMMAND..: runs, keeps the log, adds a line to the table
    local name=$1 limit=$2 start=$SECONDS; shift 2
    timeout "$limit" "$@" > "$out/$name.log" 2>&1
    local code=$?
    [ $code -eq 0 ] || tail -20 "$out/$name.log"
    table+=("$(printf '%-24s %-6s %4d s' "$name" "$([ $code -eq 0 ] && echo ok || echo "rc $code")" $((SECONDS - start)))")
}

checkpoint() { # checkpoint FORMAT: a seeded Qwen3-0.6B, made once
    [ -d "made-$1" ] || step "checkpoint-$1" 100 ./checkpoint qwen3-0.6b --format "$1" --safetensors "made-$1"
}

told() { # told NAME SECONDS COMMAND..: a step whose last lines go into the table
    step "$@"
    mapfile -t rows < <(tail -2 "$out/$1.log")
    table+=("${rows[@]}")
}

figures() { # figures NAME SHAPE WEIGHTS ARGUMENTS..: a benchmark whose rows go into the table
    local name=$1 model=$2 weights=$3; shift 3
    step "$name" 200 ./gannet bench "$model" --weights "$weights" --backend cuda --repeat 3 "$@"
    mapfile -t rows < <(grep -E '^(first|prefill|decode|sampled|masked) ' "$out/$name.log")
    table+=("${rows[@]}")
}

[ $# -gt 0 ] || set -- suite matrix bench
for part in "$@"; do
    case $part in
    suite)
        step goldens 300 ./test-goldens --test-threads 2
        step draws 100 ./test-draws --test-threads 1
        step ahead 100 ./test-ahead --test-threads 1
        ;;
    matrix)
        step exactness 300 ./test-exactness --test-threads 1
        step recurrent 100 ./test-recurrent --test-threads 1
        ;;
    bench)
        figures bench-0.6b qwen3-0.6b random --prefill 512,4096 --decode 128 --streams 1,8,64 --draw greedy,sampled
        figures bench-8b qwen3-8b random --prefill 512,4096 --decode 128 --streams 1,8,64 --draw greedy,sampled
        figures bench-30b qwen3-30b-a3b random-q4_k_m --prefill 512,4096 --decode 128 --streams 1,8,32
        ;;
    soak)
        step requests 240 ./gannet bench qwen3-0.6b --weights random --backend cuda --serve-sim --requests 200 --streams 16 --shared 0.5
        command -v compute-sanitizer > /dev/null &&
            step sanitizer 240 compute-sanitizer --error-exitcode 9 ./test-exactness --test-threads 1
        GANNET_LONG_RUN=1 step replays 240 ./test-exactness --test-threads 1 ten_thousand
        ;;
    beside)
        for pair in f32/float32 bf16/bfloat16; do
            checkpoint "${pair%/*}"
            told "beside-${pair%/*}" 150 python3 beside.py "made-${pair%/*}" "${pair#*/}"
        done
        ;;
    start) checkpoint bf16; told start 120 python3 start.py made-bf16 ;;
    *) echo "unknown part: $part"; exit 2 ;;
    esac
done
./gannet doctor | grep -E '^(cuda|kernel compiler)'
printf '%s\n' "${table[@]}"
