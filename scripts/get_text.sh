#!/usr/bin/env bash
# get_text.sh OUT_FOLDER
# Gets about 8 MB of public-domain English from two Debian packages, without installing them and without root:
# the King James Bible (bible-kjv-text) and Jane Austen's novels (r-cran-janeaustenr). Writes OUT_FOLDER/bible.txt
# and OUT_FOLDER/austen.txt: documents separated by lines `<|endoftext|>`.
set -euo pipefail

if (($# != 1)) || [[ $1 == -* ]]; then
  sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
scripts=$(cd -- "$(dirname -- "$0")" && pwd)
mkdir -p -- "$1"
out=$(cd -- "$1" && pwd)

own_text="a text of your own does as well: scripts/quickstart.sh FILE.txt (documents separated by lines <|endoftext|>)"
for tool in apt-get dpkg-deb python3 gzip; do
  if ! command -v "$tool" >/dev/null; then
    echo "get_text.sh: $tool is not there, which getting the Debian texts needs; $own_text" >&2
    exit 2
  fi
done

folder=$(mktemp -d)
trap 'rm -rf -- "$folder"' EXIT
cd -- "$folder"

options=(-q)
# As root apt would drop to its own user, who may not write here.
((EUID != 0)) || options+=(-o APT::Sandbox::User=root)
download() {
  apt-get "${options[@]}" download bible-kjv-text r-cran-janeaustenr >apt.log 2>&1
}
if ! download; then
  ((EUID != 0)) || apt-get -q update >/dev/null 2>&1 || true
  if ! download; then
    sed -n 's/^E: /apt-get: /p' apt.log >&2
    echo "get_text.sh: could not download bible-kjv-text and r-cran-janeaustenr (offline, or no package lists yet:" \
      "apt-get update as root makes them); $own_text" >&2
    exit 1
  fi
fi
for package in ./*.deb; do
  dpkg-deb -x "$package" files
done
python3 "$scripts/unpack_text.py" files/usr/lib/bible.data \
  files/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb "$out"
