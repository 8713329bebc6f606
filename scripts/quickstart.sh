#!/usr/bin/env bash
# quickstart.sh [TEXT_FILE...]
# From a fresh clone to two trained models: installs what is missing, builds, gets a text (or takes the files named),
# trains a tokenizer, writes token shards, trains one small LLaMA full-rank and one with CompAct on the same batches,
# and compares them. May be run again at any time; it makes its own folders anew:
# data/quickstart/, runs/quickstart_adamw/ and runs/quickstart_compact/.
set -euo pipefail

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,6s/^# \{0,1\}//p' "$0"
  exit 0
fi
texts=()
for file in "$@"; do
  if [[ ! -f $file || ! -r $file ]]; then
    echo "quickstart.sh: text file '$file' is not there or cannot be read" >&2
    exit 2
  fi
  texts+=("$(realpath -- "$file")")
done
cd -- "$(dirname -- "$0")/.."

compact=build/compact
data=data/quickstart
started=$SECONDS

step() {
  printf '\n[%d s] %s\n' "$((SECONDS - started))" "$1"
}

# The first python3 of the path may lack what Debian's own has.
python_with() {
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -c "import $1" >/dev/null 2>&1; then
      echo "$python"
      return
    fi
  done
  echo "quickstart.sh: no python3 that can import $1 (tried python3 and /usr/bin/python3)" >&2
  return 1
}

step "Looking for the packages that compact needs"
scripts/install_packages.sh plots
python=$(python_with matplotlib)

step "Building (Release) into build/; the log is build/quickstart.log"
mkdir -p build
{ cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCOMPACT_TESTS=OFF && cmake --build build -j "$(nproc)" --target compact; } \
  >build/quickstart.log 2>&1 || {
  tail -n 40 build/quickstart.log >&2
  echo "quickstart.sh: the build failed; its last lines are above, all of it is in build/quickstart.log" >&2
  exit 1
}

mkdir -p "$data"
if ((${#texts[@]} > 0)); then
  step "Taking the text from ${texts[*]}"
elif [[ -s $data/bible.txt && -s $data/austen.txt ]]; then
  step "Text: the King James Bible and Jane Austen's novels are in $data/ already"
  texts=("$data/bible.txt" "$data/austen.txt")
else
  step "Getting a text: the King James Bible and Jane Austen's novels (public domain), from two Debian packages"
  scripts/get_text.sh "$data"
  texts=("$data/bible.txt" "$data/austen.txt")
fi

step "Training a SentencePiece tokenizer of 4096 pieces: $data/tokenizer.model"
"$compact" tokenizer-train --vocab-size 4096 --out "$data/tokenizer" "${texts[@]}" >build/tokenizer.log 2>&1 || {
  tail -n 20 build/tokenizer.log >&2
  echo "quickstart.sh: the quickstart's model has a vocabulary of 4096; give it more text (some 500 KB or more)" >&2
  exit 2
}

step "Writing token shards, one document in twenty for validation: ${data}/text_*.bin"
rm -f "$data"/text_train_*.bin "$data"/text_val_*.bin "$data/text.json"
"$compact" tokenize --tokenizer "$data/tokenizer.model" --out "$data/text" --val-fraction 0.05 "${texts[@]}"

# compact ends well when it is interrupted (it saves a checkpoint), so the script must see the signal itself.
interrupted=0
trap 'interrupted=1' INT TERM
train() { # NAME WHAT
  local out=runs/quickstart_$1 config=configs/run/quickstart_$1.json status=0
  step "Training $2: $config -> $out/"
  rm -rf "$out"
  "$compact" train "$config" || status=$?
  if ((interrupted)); then
    printf '\nStopped. To go on with this run: %s train %s --resume\n' "$compact" "$config"
    exit 130
  fi
  ((status == 0)) || exit "$status"
}
train adamw "full-rank with AdamW"
train compact "with CompAct, rank n/4, on the same batches"
trap - INT TERM
runs=(runs/quickstart_adamw runs/quickstart_compact)

step "Comparing"
picture=runs/quickstart.png
"$python" scripts/plot_run.py "${runs[@]}" --out "$picture" --title "Quickstart: full-rank and CompAct n/4" >/dev/null
printf '\n'
"$python" scripts/compare_runs.py "${runs[@]}"
for run in "${runs[@]}"; do
  printf '\nA sample of %s:\n' "$run"
  "$compact" generate "$run" --prompt "It is" --max-tokens 60 --temperature 0.8 --top-k 40 --seed 1
done
cat <<END

Loss curves and memory: $PWD/$picture
Train longer:           $compact train configs/run/quickstart_compact.json train.steps=N --resume
                        (N above the present train.steps; an interrupted run goes on with --resume alone)
Took $((SECONDS - started)) s.
END
