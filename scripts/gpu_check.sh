#!/usr/bin/env bash
# gpu_check.sh: everything that only a card can tell. Builds for this machine's GPU, runs the device tests and a tiny
# run on it (beside the CPU, and under compute-sanitizer), then measures: copy bandwidth and bf16 products, where the
# time of a step goes, tokens/s and memory of three models beside PyTorch. Every part has a time limit and may fail
# without losing the rest. Writes one JSON (after every part what is known so far) and a log, prints a short table last.
#
#   scripts/gpu_check.sh                 all of it, under 8 minutes
#   scripts/gpu_check.sh --rehearse      the same at tiny size on the emulated device, without a GPU
#
#   --seconds N      time for all parts (default 460; 600 for a rehearsal)
#   --build DIR      build folder (default build_gpu/; build_rehearsal/ for a rehearsal)
#   --no-build       take the programs that are in it as they are (they may be of another machine)
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
probe=''
# shellcheck disable=SC2317  # called by the trap
tidy() {
  [[ -n $probe ]] && kill "$probe" 2>/dev/null
  rm -rf "$parts"
}
trap tidy EXIT
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

note_part() { # NAME RESULT SECONDS NOTE
  local note=${4//[$'\t\r\n']/ }
  printf '%s\t%s\t%d\t%s\n' "$1" "$2" "$3" "${note:0:300}" >>"$parts/parts.tsv"
  say "$1: $2${note:+ ($note)}"
  "$base_python" "${bench[@]}" --seconds 1 >>"$log" 2>&1  # no --compact: writes what is known
}

# part NAME LIMIT COMMAND...: runs it within its limit (or "none") and the time left; notes how it ended. A command ends
# with 77 where it has nothing to run on. With late=skipped before it being late is no failure.
part() {
  local name=$1 limit=$2 began=$SECONDS status=0 result note=''
  shift 2
  [[ $limit != none ]] && ((limit > $(left))) && limit=$(left)
  printf '\n==== %s (at most %s s): %s\n' "$name" "$limit" "$*" >>"$log"
  if [[ $limit == none ]]; then
    "$@" >"$parts/output" 2>&1 </dev/null || status=$?
    cat "$parts/output" >>"$log"
  elif ((limit < 3)); then
    : >"$parts/output"
    status=124
  else
    timeout -k 5 "$limit" "$@" >"$parts/output" 2>&1 </dev/null || status=$?
    cat "$parts/output" >>"$log"
  fi
  case $status in
    0) result=passed ;;
    77) result=skipped note=$(tail -n 1 "$parts/output") ;;
    124 | 137) result=${late:-failed} note="out of time ($((limit < 0 ? 0 : limit)) s)" ;;
    *) result=failed note=$(grep -v '^ *$' "$parts/output" | tail -n 1) ;;
  esac
  note_part "$name" "$result" $((SECONDS - began)) "$note"
  return "$status"
}
skip() { note_part "$1" skipped 0 "$2"; } # NAME WHY

base_python=$(command -v python3) || {
  echo "gpu_check.sh: python3 was not found; the benchmarks are driven by it" >&2
  exit 2
}
bench=(scripts/gpu_bench.py --out "$out" --log "$log" --parts "$parts/parts.tsv")
((rehearse)) && bench+=(--rehearse)

# ---- what there is ----------------------------------------------------------------------------------------------------
for nvcc in nvcc /usr/local/cuda/bin/nvcc ''; do
  command -v "$nvcc" >/dev/null 2>&1 && break
done
if ((build_it)) && [[ -z $nvcc ]]; then
  echo "gpu_check.sh: nvcc was not found; install NVIDIA's CUDA toolkit (13.0 was tried), or put its bin folder on PATH" >&2
  exit 2
fi
architecture='' card=''
export CUDA_DEVICE_ORDER=PCI_BUS_ID  # the first card of nvidia-smi is the first of CUDA then
if ((!rehearse)); then
  command -v nvidia-smi >/dev/null || {
    echo "gpu_check.sh: no NVIDIA GPU at hand: nvidia-smi, which the driver brings, was not found" >&2
    echo "  install the driver, or rehearse without a card: scripts/gpu_check.sh --rehearse" >&2
    exit 2
  }
  if ! card=$(nvidia-smi --query-gpu=name,compute_cap,memory.total,driver_version --format=csv,noheader 2>&1); then
    echo "gpu_check.sh: no NVIDIA GPU at hand: nvidia-smi says: ${card:-nothing}" >&2
    echo "  install the driver, or rehearse without a card: scripts/gpu_check.sh --rehearse" >&2
    exit 2
  fi
  : >"$log" || exit 1
  say "card: ${card//$'\n'/; }"
  nvidia-smi >>"$log" 2>&1
  bench+=(--card "$(head -n 1 <<<"$card" | cut -d, -f1)")
  architecture=$(head -n 1 <<<"$card" | cut -d, -f2 | tr -d ' .')
  # A card that is newer than the compiler runs the newest PTX instead.
  if [[ -n $nvcc ]] && ! "$nvcc" --list-gpu-arch 2>/dev/null | grep -qx "compute_$architecture"; then architecture=''; fi
else
  : >"$log" || exit 1
fi
# The first import of PyTorch reads gigabytes from the disk: beside the build.
pythons=("$base_python")
[[ $base_python == /usr/bin/python3 ]] || pythons+=(/usr/bin/python3)
[[ -n $python ]] && pythons=("$python")
find_torch() {
  local wanted='import torch; torch.nn.functional.rms_norm' one  # 2.4 or newer
  ((rehearse)) || wanted+='; torch.zeros(1, device="cuda")'
  for one in "${pythons[@]}"; do
    timeout 90 "$one" -c "$wanted" >>"$log" 2>&1 && { echo "$one" >"$parts/torch"; return; }
  done
}
if [[ -z $python ]]; then
  find_torch >/dev/null 2>&1 </dev/null &
  probe=$!
fi

# ---- build ------------------------------------------------------------------------------------------------------------
compact=$build/compact
((rehearse)) && compact=$build/tests/cuda_emulation/compact_emulated
if ((build_it)); then
  # Ends with 77 where packages are missing.
  configure() {
    local said
    if said=$(cmake "$@" 2>&1); then
      printf '%s\n' "$said"
      return
    fi
    printf '%s\n' "$said"
    local missing='could not find|not found|unable to find|could be found|no such file|is needed|needs '
    grep -qiE "$missing" <<<"$said" || return 1
    echo "something is missing: $(grep -iE -m 1 "$missing" <<<"$said")"
    return 77
  }
  # apt itself has no time limit, since ending it half-way leaves broken packages; servers out of reach have one.
  packages() {
    APT_CONFIG=$parts/apt.conf scripts/install_packages.sh tests || { echo "not all could be installed"; return 77; }
  }
  export -f configure packages
  export parts
  printf 'Acquire::%s "%s";\n' http::Timeout 10 https::Timeout 10 Retries 0 >"$parts/apt.conf"
  # Whatever a compiler of another version warns of, the figures are wanted.
  options=(-S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCOMPACT_CUDA=ON -DCOMPACT_WERROR=OFF)
  [[ -n $architecture ]] && options+=("-DCMAKE_CUDA_ARCHITECTURES=$architecture")
  status=0
  part configure 60 bash -c 'configure "$@"' _ "${options[@]}" -DCOMPACT_TESTS=ON || status=$?
  if ((status == 77)); then
    part packages none bash -c packages
    status=0
    part "configure again" 60 bash -c 'configure "$@"' _ "${options[@]}" -DCOMPACT_TESTS=ON || status=$?
  fi
  if ((status != 0)); then
    say "trying without the tests, which need packages of their own"
    status=0
    part "configure without tests" 60 cmake "${options[@]}" -DCOMPACT_TESTS=OFF || status=$?
  fi
  if ((status == 0)); then
    limit=240
    target=compact
    ((rehearse)) && target=compact_emulated limit=3600 seconds=$((seconds + 3600))
    began=$SECONDS
    part build "$limit" cmake --build "$build" -j "$(nproc)" --target "$target" || status=$?
    ((rehearse)) && seconds=$((seconds - 3600 + SECONDS - began))  # the build is no part of the rehearsal's time
  fi
  if ((status != 0)); then
    echo "gpu_check.sh: the build failed; $out says so, the log is $log, its end:" >&2
    tail -n 30 "$log" >&2
    exit 1
  fi
fi
if [[ ! -x $compact ]]; then
  note_part program failed 0 "$compact is not there"
  exit 1
fi

# ---- libraries --------------------------------------------------------------------------------------------------------
# cuBLASLt is often where no loader looks: in the toolkit's folder, or with PyTorch in a wheel of NVIDIA's.
missing() { ldd "$compact" 2>&1 | sed -n '/not found/s/^[[:space:]]*//p'; }
# The program loads it when it first uses a card, so ldd does not name it. The emulated one has none.
name=$(grep -aom 1 'libcublasLt\.so\.[0-9]\+' "$compact" | head -n 1)
if [[ -n $name ]] && ! ldconfig -p 2>/dev/null | grep -qF "$name"; then
  candidates=(/usr/local/cuda/lib64 /usr/local/cuda-*/lib64)
  for one in "${pythons[@]}"; do
    mapfile -t -O "${#candidates[@]}" candidates < <("$one" -c 'import glob, sys
for path in sys.path:
    print(*glob.glob(glob.escape(path) + "/nvidia/*/lib"), sep="\n")' 2>>"$log")
  done
  for folder in "${candidates[@]}"; do
    [[ -n $folder && -e $folder/$name ]] || continue
    say "$name: taken from $folder"
    export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    bench+=(--libraries "$folder")
    break
  done
fi
lacks=$(missing)
if [[ -n $lacks ]]; then
  note_part libraries failed 0 "$compact cannot be started, since libraries are missing or of another version: \
${lacks//$'\n'/; }"
  exit 2
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
  # As in CMakeLists.txt: of some programs not all tests run on the device of the tests.
  local -A only=([train]='*Presets*:*Golden*:*UpdateOrder*:Windows.*:PerLayer.*:Engine.*:OwnRows*')
  local found=0 passed=0 failed=0 program name status words=''
  for program in "$build"/test_*_card; do
    [[ -x $program ]] || continue
    name=${program##*/test_} name=${name%_card}
    found=1 status=0
    # The paths of a build elsewhere are not those of this machine.
    COMPACT_TEST_DEVICE=cuda COMPACT_SOURCE_DIR=$PWD "$program" --gtest_brief=1 --gtest_filter="${only[$name]:-*}" ||
      status=$?
    case $status in
      0) passed=1 ;;
      77) ;;
      *) failed=$status words="test_${name}_card: exit status $status" ;;
    esac
  done
  ((found)) || { echo "no device tests in $build"; return 77; }
  ((failed)) && { echo "$words"; return 1; }
  ((passed)) || return 77
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
  late=skipped part "compute-sanitizer" "$(before_benchmarks 100)" "$base_python" "${smoke[@]}" --steps 2 \
    --under "$sanitizer --tool memcheck --error-exitcode 9"
fi

# ---- measuring --------------------------------------------------------------------------------------------------------
if [[ -n $probe ]]; then
  wait "$probe"
  probe='' python=$(cat "$parts/torch" 2>/dev/null)
fi
[[ -n $python ]] && bench+=(--python "$python")
"$base_python" "${bench[@]}" --compact "$compact" --seconds "$(left)" || say "gpu_bench.py failed; see $log"
table=("$base_python" scripts/gpu_table.py "$out")
((docs)) && table+=(--write docs/gpu_results.md)
"${table[@]}" || exit 1
echo "All figures: $out; everything that was said: $log"
! grep -q $'\tfailed\t' "$parts/parts.tsv"
