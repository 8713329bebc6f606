#!/usr/bin/env bash
# run_and_save.sh [--requeue] OUT_DIR LAUNCHER... compact train RUN.json [key.path=value ...]
#
# Starts a run under mpirun or srun, so that what ends the job leaves a checkpoint, and the same command goes on from
# it. OUT_DIR is the run's train.out_dir:
#
#   scripts/slurm/run_and_save.sh runs/x mpirun -np 8 build/compact train RUN.json train.out_dir=runs/x
#
# - Where OUT_DIR holds a complete checkpoint, --resume is added to the command.
# - On SIGUSR1 (which Slurm sends before the time limit, see the .sbatch files), SIGTERM or SIGINT the ranks are told
#   by SIGUSR2 to finish the step, write a checkpoint and end; after SAVE_SECONDS (default 90) they are ended.
#   A SIGTERM alone would not do: mpirun kills its ranks a second after it has passed it on, srun at once.
# - --requeue: after a SIGUSR1, with a checkpoint to go on from, the Slurm job is put back into the queue.
#
# Ends with 0 when all steps are done, with 75 when a signal has ended the run and there is a new checkpoint to go on
# from, otherwise as the launcher does. Without --requeue it needs nothing of Slurm.
set -uo pipefail

say() { echo "run_and_save.sh: $*" >&2; }
wrong() {
  say "$*"
  exit 2
}
requeue=0
case ${1:-} in
-h | --help)
  sed -n '2,17s/^# \{0,1\}//p' "$0"
  exit 0
  ;;
--requeue)
  requeue=1
  shift
  [[ -n ${SLURM_JOB_ID:-} ]] || wrong "--requeue is for a job of Slurm, and SLURM_JOB_ID is not set"
  ;;
esac
(($# >= 3)) || wrong "expected OUT_DIR and a command that starts compact train; --help tells more"
out=$1
shift
command=("$@")
for word in "${command[@]}"; do
  [[ $word != train.out_dir=* || ${word#train.out_dir=} == "$out" ]] ||
    wrong "OUT_DIR is '$out', but the command says $word"
done
patience=${SAVE_SECONDS:-90}
[[ $patience =~ ^[1-9][0-9]*$ ]] || wrong "SAVE_SECONDS is '$patience', but must be a whole number of seconds"
readonly to_be_continued=75

# The newest complete checkpoint. Steps have at least eight digits, so that a longer name is a newer one.
newest_checkpoint() {
  local file
  for file in "$out"/checkpoints/step_*[0-9]/MANIFEST.json; do
    [[ -e $file ]] && printf '%d %s\n' "${#file}" "${file%/MANIFEST.json}"
  done | sort -k1,1n -k2 | tail -n 1 | cut -d ' ' -f 2-
}

at_start=$(newest_checkpoint)
if [[ -n $at_start ]]; then
  command+=(--resume)
  say "goes on from $at_start"
elif [[ -e $out/metrics.jsonl || -e $out/config.resolved.json ]]; then
  # An earlier start ended before its first checkpoint: there is nothing to go on from. A run that is going on holds
  # a lock on the folder.
  flock -n "$out" true || wrong "$out is in use by a run that is going on"
  aside=$out/without_checkpoint_$(date +%Y%m%d_%H%M%S)
  mkdir -- "$aside" || exit 1
  for name in metrics.jsonl config.resolved.json run.log; do
    [[ ! -e $out/$name ]] || mv -- "$out/$name" "$aside/" || exit 1
  done
  say "$out holds a run without a checkpoint: it starts again, and the old metrics are in $aside"
fi

launcher='' asked=''
# SIGNAL; the first one counts. Called by the traps.
# shellcheck disable=SC2317
ask() {
  [[ -z $asked ]] || return
  asked=$1
  [[ -z $launcher ]] || kill -USR2 "$launcher" 2>/dev/null
}
trap 'ask USR1' USR1
trap 'ask TERM' TERM INT
"${command[@]}" &
launcher=$!
[[ -z $asked ]] || kill -USR2 "$launcher" # it came before the line above

running() { kill -0 "$launcher" 2>/dev/null; }
end_when_saved() {
  local deadline=$((SECONDS + patience)) again=$((SECONDS + 5))
  say "SIG$asked: asked the ranks to save and end"
  while running; do
    if ((SECONDS >= deadline)); then
      say "they have not ended in $patience seconds; SIGTERM"
      kill -TERM "$launcher" 2>/dev/null
      break
    elif ((SECONDS >= again)); then
      # A launcher that was still starting has lost the first one; to the ranks a second one is no news.
      kill -USR2 "$launcher" 2>/dev/null
      again=$((SECONDS + 5))
    fi
    sleep 0.2
  done
}

while true; do
  wait "$launcher"
  status=$?
  running || break
  [[ -z $asked ]] || end_when_saved
done
# Where a signal came just then, `status` is that of the interrupted wait.
if ((status > 128)); then
  wait "$launcher" 2>/dev/null
  own=$?
  ((own == 127)) || status=$own
fi

# Ended by a signal, and not because all steps were done.
if [[ -n $asked && $(newest_checkpoint) != "$at_start" ]] &&
  ! tail -n 1 "$out/metrics.jsonl" 2>/dev/null | grep -q '"finished":true'; then
  status=$to_be_continued
  if ((requeue)) && [[ $asked == USR1 ]]; then
    say "puts job $SLURM_JOB_ID back into the queue"
    scontrol requeue "$SLURM_JOB_ID" || status=$?
  fi
fi
exit "$status"
