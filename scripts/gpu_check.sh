#!/usr/bin/env bash
# gpu_check.sh: everything that only a card can tell. Builds for this machine's GPU, runs the device tests and a tiny
# run on it (beside the CPU, and under compute-sanitizer), then measures: copy bandwidth and bf16 products, where the
# time of a step goes, tokens/s and memory of three models beside PyTorch. Every part has a time limit and may fail
# without losing the rest. Writes one JSON and a log, prints a short table last.
#
#   scripts/gpu_check.sh                 all of it, under 8 minutes
#   scripts/gpu_check.sh --rehearse      the same at tiny size on the emulated device, without a GPU
#
#   --seconds N      time for all parts (default 460; 600 for a rehearsal)
#   --build DIR      build folder (default build_gpu/; build_rehearsal/ for a rehearsal)
#   --no-build       take the programs that are in it as they are
#   --python PYTHON  interpreter that may have PyTorch (default: the first python3 that has 2.4 or newer)
#   --out FILE       the JSON (default results/gpu_check.json); the log lies beside it
#   --docs           write docs/gpu_results.md from it
set -uo pipefail
cd -- "$(dirname -- "$0")/.." || exit 1

rehearse=0 seconds='' build='' build_it=1 python='' out='' docs=0
usage() { sed -n '2,17s/^# \{0,1\}//p' "$0"; }
while (($# > 0)); do
  case $1 in
    --rehearse) rehearse=1 ;;
    --no-build) build_it=0 ;;
    --docs) docs=1 ;;
    --seconds | --build | --python | --out)
      if (($# < 2)); then
        echo "gpu_check.sh: $1 needs a value" >&2
        exit 2
      fi
      case $1 in
        --seconds) seconds=$2 ;;
        --build) build=$2 ;;
        --python) python=$2 ;;
        --out) out=$2 ;;
      esac
      shift
      ;;
    -h | --help) usage; exit 0 ;;
    *)
      echo "gpu_check.sh: unknown option '$1'; --help lists them" >&2
      exit 2
      ;;
  esac
  shift
done
if ((rehearse)); then
  : "${seconds:=600}" "${build:=build_rehearsal}" "${out:=results/gpu_rehearsal.json}"
else
  : "${seconds:=460}" "${build:=build_gpu}" "${out:=results/gpu_check.json}"
fi
if ! [[ $seconds =~ ^[1-9][0-9]*$ ]]; then
  echo "gpu_check.sh: --seconds is '$seconds', but must be a whole number above 0" >&2
  exit 2
fi
if ((docs && rehearse)); then
  echo "gpu_check.sh: --docs needs figures of a card; leave --rehearse out" >&2
  exit 2
fi
mkdir -p "$(dirname -- "$out")" || exit 1
log=${out%.json}.log
parts=$(mktemp -d) || exit 1
trap 'rm -rf "$parts"' EXIT
: >"$log" || exit 1
: >"$parts/parts.tsv"
export OMP_WAIT_POLICY=passive

left() { echo $((seconds - SECONDS)); }
# At most $1 seconds, and none of those that the benchmarks need.
before_benchmarks() {
  local rest=$(($(left) - 220))
  if ((rehearse)); then rest=$(($(left) - 200)); fi
  echo $(($1 < rest ? $1 : rest))
}
say() { printf '[%3d s] %s\n' "$SECONDS" "$*" | tee -a "$log"; }

# part NAME LIMIT COMMAND...: runs it within its limit and the time left; notes how it ended. A command ends with 77
# where it has nothing to run on.
part() {
  local name=$1 limit=$2 began=$SECONDS status=0 result note=''
  shift 2
  ((limit > $(left))) && limit=$(left)
  printf '\n==== %s (at most %d s): %s\n' "$name" "$limit" "$*" >>"$log"
  if ((limit < 3)); then
    status=124
  else
    timeout -k 5 "$limit" "$@" >"$parts/output" 2>&1 </dev/null || status=$?
    cat "$parts/output" >>"$log"
  fi
  case $status in
    0) result=passed ;;
    77) result=skipped note=$(tail -n 1 "$parts/output") ;;
    124 | 137) result=failed note="out of time ($limit s)" ;;
    *) result=failed note=$(grep -v '^ *$' "$parts/output" | tail -n 1) ;;
  esac
  note=${note//[$'\t\r']/ }
  printf '%s\t%s\t%d\t%s\n' "$name" "$result" $((SECONDS - began)) "${note:0:300}" >>"$parts/parts.tsv"
  say "$name: $result${note:+ ($note)}"
  return "$status"
}
skip() { # NAME WHY
  printf '%s\tskipped\t0\t%s\n' "$1" "$2" >>"$parts/parts.tsv"
  say "$1: skipped ($2)"
}

# ---- what there is ----------------------------------------------------------------------------------------------------
for nvcc in nvcc /usr/local/cuda/bin/nvcc ''; do
  command -v "$nvcc" >/dev/null 2>&1 && break
done
if ((build_it)) && [[ -z $nvcc ]]; then
  echo "gpu_check.sh: nvcc was not found; install NVIDIA's CUDA toolkit (12 or newer), or put its bin folder on PATH" >&2
  exit 2
fi
architecture=''
if ((!rehearse)); then
  if ! card=$(nvidia-smi --query-gpu=name,compute_cap,memory.total,driver_version --format=csv,noheader 2>&1); then
    echo "gpu_check.sh: no NVIDIA GPU at hand: nvidia-smi says: ${card:-nothing}" >&2
    echo "  install the driver, or rehearse without a card: scripts/gpu_check.sh --rehearse" >&2
    exit 2
  fi
  say "card: ${card//$'\n'/; }"
  { nvidia-smi; } >>"$log" 2>&1
  architecture=$(head -n 1 <<<"$card" | cut -d, -f2 | tr -d ' .')
  # A card that is newer than the compiler runs the newest PTX instead.
  if [[ -n $nvcc ]] && ! "$nvcc" --list-gpu-arch 2>/dev/null | grep -qx "compute_$architecture"; then architecture=''; fi
fi
if [[ -z $python ]]; then
  wanted='import torch; torch.nn.functional.rms_norm'  # 2.4 or newer
  ((rehearse)) || wanted+='; torch.zeros(1, device="cuda")'
  for python in python3 /usr/bin/python3; do
    timeout 60 "$python" -c "$wanted" >>"$log" 2>&1 && break
    python=''
  done
fi
base_python=$(command -v python3) || {
  echo "gpu_check.sh: python3 was not found; the benchmarks are driven by it" >&2
  exit 2
}

# ---- build ------------------------------------------------------------------------------------------------------------
compact=$build/compact
((rehearse)) && compact=$build/tests/cuda_emulation/compact_emulated
if ((build_it)); then
  packages() { scripts/install_packages.sh tests || { echo "not all could be installed"; return 77; }; }
  export -f packages
  part packages 60 bash -c packages
  options=(-S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCOMPACT_CUDA=ON)
  [[ -n $architecture ]] && options+=("-DCMAKE_CUDA_ARCHITECTURES=$architecture")
  if ! part configure 60 cmake "${options[@]}" -DCOMPACT_TESTS=ON; then
    say "trying without the tests, which need packages of their own"
    part "configure without tests" 60 cmake "${options[@]}" -DCOMPACT_TESTS=OFF
  fi
  limit=240
  target=compact
  ((rehearse)) && target=compact_emulated limit=3600 seconds=$((seconds + 3600))
  began=$SECONDS
  part build "$limit" cmake --build "$build" -j "$(nproc)" --target "$target"
  ((rehearse)) && seconds=$((seconds - 3600 + SECONDS - began))  # the build is no part of the rehearsal's time
fi
if [[ ! -x $compact ]]; then
  echo "gpu_check.sh: $compact is not there; the log is $log, its end:" >&2
  tail -n 30 "$log" >&2
  exit 1
fi

# ---- tests ------------------------------------------------------------------------------------------------------------
build_tests() {
  mapfile -t targets < <(ninja -C "$build" -t targets all | sed -n 's/^\(test_[a-z_]*_card\): CXX_.*/\1/p')
  ((${#targets[@]} > 0)) || { echo "no device tests in this build"; return 77; }
  cmake --build "$build" -j "$(nproc)" --target "${targets[@]}"
}
device_tests() {
  if ((build_it)) && command -v ctest >/dev/null; then
    ctest --test-dir "$build" -R '^card_' --output-on-failure --no-tests=error
    return
  fi
  local found=0 failed=0 program status
  for program in "$build"/test_*_card; do
    [[ -x $program ]] || continue
    found=1 status=0
    COMPACT_TEST_DEVICE=cuda "$program" --gtest_brief=1 || status=$?
    ((status == 0)) || failed=$status
  done
  ((found)) || { echo "no device tests in $build"; return 77; }
  return "$failed"
}
emulated_tests() {
  if ((build_it)); then cmake --build "$build" -j "$(nproc)" --target test_kernels || return; fi
  [[ -x $build/test_kernels ]] || { echo "no tests in $build"; return 77; }
  COMPACT_TEST_DEVICE=cuda "$build/test_kernels" --gtest_brief=1 --gtest_filter='Elementwise.*:Rmsnorm.*'
}
export -f build_tests device_tests emulated_tests
export build build_it
if ((rehearse)); then
  began=$SECONDS
  seconds=$((seconds + 3600))
  part "device tests (a few, emulated)" 3600 bash -c emulated_tests
  seconds=$((seconds - 3600 + SECONDS - began))
else
  if ((build_it)); then part "build of the tests" "$(before_benchmarks 150)" bash -c build_tests; fi
  part "device tests" "$(before_benchmarks 120)" bash -c device_tests
fi

steps=20
((rehearse)) && steps=2
smoke=(scripts/gpu_smoke.py --compact "$compact" --steps "$steps")
part "tiny run on CPU and card" "$(before_benchmarks 200)" "$base_python" "${smoke[@]}"

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
if [[ -z $sanitizer ]]; then
  skip "compute-sanitizer" "it is not installed"
elif ((rehearse)); then
  skip "compute-sanitizer" "a rehearsal has no device code to check"
else
  part "compute-sanitizer" "$(before_benchmarks 60)" "$base_python" "${smoke[@]}" --steps 2 --under "$sanitizer --tool memcheck --error-exitcode 9"
fi

# ---- measuring --------------------------------------------------------------------------------------------------------
bench=(scripts/gpu_bench.py --compact "$compact" --out "$out" --log "$log" --parts "$parts/parts.tsv")
((rehearse)) && bench+=(--rehearse)
[[ -n $python ]] && bench+=(--python "$python")
"$base_python" "${bench[@]}" --seconds "$(left)" || say "gpu_bench.py failed; see $log"
table=("$base_python" scripts/gpu_table.py "$out")
((docs)) && table+=(--write docs/gpu_results.md)
"${table[@]}" || exit 1
echo "All figures: $out; everything that was said: $log"
! grep -q $'\tfailed\t' "$parts/parts.tsv"
