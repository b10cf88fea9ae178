#!/usr/bin/env bash
# The packages of ./dev package in fresh systems: each is made by debootstrap in a folder under $TMPDIR, used by chroot, and
# removed. Needs root, debootstrap and the network; so it is no part of ctest.
#
#   ./dev package && sudo tests/install/roots.sh [SYSTEM...]
#
# SYSTEM: debian-12, debian-13, ubuntu-22.04; without any, the first two. Ubuntu's packages are checked by the keyring that
# UBUNTU_KEYRING names (Ubuntu has it in ubuntu-keyring).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

die() { printf 'roots.sh: %s\n' "$*" >&2; exit 1; }
[[ $(id -u) == 0 ]] || die "chroot needs root: sudo $0 $*"
command -v debootstrap >/dev/null || die "install debootstrap first: apt-get install debootstrap"

tarball=$(echo build/packages/llmprof-*.tar.gz) deb=$(echo build/packages/llmprof_*.deb)
[[ -f $tarball && -f $deb ]] || die "expected one tarball and one .deb in build/packages: run ./dev package"
recording=tests/golden/inputs/kineto_llama-3.1-8b_unlabelled.json.gz

root='' log=''
clean_up() {
  rm -f "$log"
  [[ -n $root ]] || return 0
  umount "$root/proc" 2>/dev/null || true
  mountpoint -q "$root/proc" || rm -rf --one-file-system "$root"
  root=
}
trap clean_up EXIT

# What is tried inside: $1 is the program's prefix.
try='
set -eux
prefix=$1
work=$(mktemp -d)
cd "$work"
export HOME=$work XDG_RUNTIME_DIR=$work
llmprof=$prefix/bin/llmprof library=$prefix/lib/libllmprof_inject.so
"$llmprof" list gpus | grep -q H200
"$llmprof" demo --recorded | grep -q "^Findings"
"$llmprof" analyze /recording.json.gz --json -o report.json
grep -q "\"schema\": \"llmprof.report/1\"" report.json
"$llmprof" export /recording.json.gz --to sqlite -o trace.sqlite
"$llmprof" export /recording.json.gz --to perfetto -o trace.pftrace
"$llmprof" model llama-3.1-8b --quiet >/dev/null
# oneDNN brings the system libstdc++ into a program that has its own.
if ldconfig -p | grep -q libdnnl.so.2; then
  "$llmprof" run --no-report -o session-cpu -- "$llmprof" workload --device cpu --size tiny >/dev/null
  "$llmprof" workload --device cpu --size tiny --record run.llmprof >/dev/null
  "$llmprof" analyze run.llmprof >/dev/null
fi
# The dynamic linker says on standard error, and only there, when it cannot load a library.
complaints=$(LD_PRELOAD=$library /bin/true 2>&1)
[ -z "$complaints" ] || { echo "$complaints"; exit 1; }
"$llmprof" run --no-report -o session -- /bin/sh -c "echo \$LD_PRELOAD" >seen 2>complaints
grep -q "$library" seen
if grep -i "cannot be preloaded" complaints; then exit 1; fi
bash -c "source $prefix/share/bash-completion/completions/llmprof; complete -p llmprof" >/dev/null
cd /
rm -r "$work"
echo "$("$llmprof" -V) runs"
'

# try_in PREFIX WHAT
try_in() {
  local seen
  seen=$(chroot "$root" /bin/sh -c "$try" try "$1" 2>"$log") ||
    { tail -5 "$log" >&2; die "$2, in $root: what is listed in this script under 'try' does not run"; }
  printf '%s: %s\n' "$2" "$(tail -1 <<<"$seen")"
}

# in_root SYSTEM SUITE MIRROR KEYRING COMPONENTS
in_root() {
  local system=$1 suite=$2 mirror=$3 keyring=$4 components=$5
  printf '== %s\n' "$system"
  [[ -f $keyring ]] || die "$system: no $keyring to check its packages by (see the head of this script)"
  root=$(mktemp -d -t "llmprof-root-$system-XXXXXX")
  log=$(mktemp)
  debootstrap --variant=minbase --components="$components" --keyring="$keyring" "$suite" "$root" "$mirror" >"$log" 2>&1 ||
    { tail -20 "$log" >&2; die "$system: debootstrap failed"; }
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  mount -t proc proc "$root/proc"
  cp "$recording" "$root/recording.json.gz"
  printf 'glibc %s\n' "$(chroot "$root" dpkg-query -W -f '${Version}' libc6)"

  local inside
  inside=/opt/$(basename "$tarball" .tar.gz)
  tar -xzf "$tarball" -C "$root/opt"
  try_in "$inside" "tarball in /opt"
  chroot "$root" mv "$inside" /srv/elsewhere
  try_in /srv/elsewhere "the same, moved"

  local before added
  cp "$deb" "$root/llmprof.deb"
  before=$(chroot "$root" dpkg-query -f '${Package}\n' -W | sort)
  chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q ./llmprof.deb >"$log" 2>&1 ||
    { tail -20 "$log" >&2; die "$system: the .deb does not install"; }
  added=$(comm -13 <(printf '%s\n' "$before") <(chroot "$root" dpkg-query -f '${Package}\n' -W | sort) | tr '\n' ' ')
  printf '.deb, added packages: %s\n' "$added"
  try_in /usr ".deb in /usr"
  if chroot "$root" apt-get install -y -q libdnnl2 libopenblas0-openmp >"$log" 2>&1; then
    try_in /usr ".deb beside oneDNN"
  fi
  chroot "$root" dpkg --purge llmprof >/dev/null 2>&1
  [[ ! -e $root/usr/bin/llmprof && ! -e $root/usr/lib/libllmprof_inject.so ]] || die "$system: dpkg --purge left files"
  clean_up
}

systems=("$@")
((${#systems[@]})) || systems=(debian-12 debian-13)
debian_keyring=/usr/share/keyrings/debian-archive-keyring.gpg
ubuntu_keyring=${UBUNTU_KEYRING:-/usr/share/keyrings/ubuntu-archive-keyring.gpg}
for system in "${systems[@]}"; do
  case $system in
    debian-12) in_root "$system" bookworm http://deb.debian.org/debian "$debian_keyring" main ;;
    debian-13) in_root "$system" trixie http://deb.debian.org/debian "$debian_keyring" main ;;
    ubuntu-22.04) in_root "$system" jammy http://archive.ubuntu.com/ubuntu "$ubuntu_keyring" main,universe ;;
    *) die "no system '$system': expected debian-12, debian-13 or ubuntu-22.04" ;;
  esac
done
printf '== all of it ran\n'
