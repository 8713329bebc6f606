#!/usr/bin/env bash
# Installs the Debian packages that compact needs. When all are there it touches nothing and needs no root.
#
#   scripts/install_packages.sh            packages to build
#   scripts/install_packages.sh tests      the same, and those of the tests
#   scripts/install_packages.sh plots      the same, and those of the plots
set -euo pipefail

usage() {
  sed -n '2,7s/^# \{0,1\}//p' "$0"
}

# group | package | why
packages='
build|g++|C++20 compiler
build|cmake|configures the build (3.25 or newer)
build|ninja-build|runs the build
build|pkg-config|finds sentencepiece and xxhash
build|libdnnl-dev|oneDNN: matrix products on the CPU
build|libsentencepiece-dev|tokenizers
build|nlohmann-json3-dev|JSON files
build|libspdlog-dev|log files
build|libfmt-dev|text formatting
build|libcli11-dev|command line
build|libxxhash-dev|XXH3 hashes of shards and checkpoints
build|zlib1g-dev|reads .txt.gz
build|libopenmpi-dev|several processes
build|openmpi-bin|mpirun
optional|ccache|makes a second build quick (optional)
tests|libgtest-dev|test framework
tests|libboost-context-dev|runs the CUDA kernels on the CPU, where nvcc is
tests|python3|runs the case collection
plots|python3|tables and plots
plots|python3-numpy|plots
plots|python3-matplotlib|plots
'

groups=' build '
for group in "$@"; do
  case $group in
    tests | plots) groups+="$group " ;;
    -h | --help) usage; exit 0 ;;
    *)
      echo "install_packages.sh: unknown group '$group'; known are: tests, plots" >&2
      exit 2
      ;;
  esac
done

if ! command -v dpkg-query >/dev/null; then
  echo "install_packages.sh: this is no Debian system (no dpkg-query); install by hand what these packages hold:" >&2
  printf '%s\n' "$packages" | awk -F'|' 'NF == 3 && !seen[$2]++ {printf "  %-22s %s\n", $2, $3}' >&2
  exit 2
fi

is_installed() {
  [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

missing=() optional=() table=''
while IFS='|' read -r group package why; do
  [[ -n $group ]] || continue
  [[ $group == optional || $groups == *" $group "* ]] || continue
  is_installed "$package" && continue
  [[ " ${missing[*]} " != *" $package "* ]] || continue
  if [[ $group == optional ]]; then optional+=("$package"); else missing+=("$package"); fi
  table+=$(printf '  %-22s %s' "$package" "$why")$'\n'
done <<<"$packages"

if ((${#missing[@]} == 0)); then
  echo "Packages: all there."
  exit 0
fi

echo "Packages that are missing, and why they are needed:"
printf '%s' "$table"
wanted=("${missing[@]}" "${optional[@]}")
command_line="apt-get install -y --no-install-recommends ${wanted[*]}"

as_root=()
if ((EUID != 0)); then
  # A password can be asked for only on a terminal.
  if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 && -t 2 ]]; }; then
    as_root=(sudo)
  else
    echo "install_packages.sh: installing needs root; run this as root, then start again: apt-get update && $command_line" >&2
    exit 2
  fi
fi

apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get "$@"
}

has_candidate() {
  local policy
  policy=$(apt-cache policy "$1" 2>/dev/null)
  [[ $policy =~ Candidate:\ +[^\(\ ] ]]
}

updated=0
for package in "${wanted[@]}"; do
  if ! has_candidate "$package"; then
    echo "Reading the lists of packages (apt-get update): '$package' is not in the present ones."
    apt update -q
    updated=1
    break
  fi
done

echo "Installing: $command_line"
if ! apt install -y -q --no-install-recommends "${wanted[@]}"; then
  if ((updated)); then
    echo "install_packages.sh: apt-get could not install the packages; its message is above" >&2
    exit 1
  fi
  # Lists that are too old name versions that the servers no longer have.
  echo "Reading the lists of packages again (apt-get update) and trying once more."
  apt update -q
  apt install -y -q --no-install-recommends "${wanted[@]}"
fi
