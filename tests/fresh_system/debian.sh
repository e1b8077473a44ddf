#!/usr/bin/env bash
# debian.sh SOURCE WORK [RELEASE]: the two commands of the README in a file system that debootstrap has just made, with
# nothing in it but git and certificates. Takes root, the network, and as long as ./run test.
# Exit status 77: it cannot be done here.
set -euo pipefail
source=$1 root=$2/root release=${3:-bookworm}

skip() {
  echo "skipped: $*"
  exit 77
}
((EUID == 0)) || skip "debootstrap and chroot need root"
command -v debootstrap >/dev/null || skip "no debootstrap here"
unshare --mount true 2>/dev/null || skip "no mount namespace can be made here"
mirror=http://deb.debian.org/debian
if command -v curl >/dev/null && ! curl -fsI "$mirror/dists/$release/Release" >/dev/null; then
  skip "no network: $mirror cannot be reached"
fi

rm -rf "$root"
mkdir -p "$root"
debootstrap --variant=minbase --include=git,ca-certificates "$release" "$root" "$mirror" >/dev/null
git clone -q "$source" "$root/root/checkout"
cp /etc/resolv.conf "$root/etc/resolv.conf"

# /proc is mounted for the commands alone.
unshare --mount bash -c '
  mount -t proc proc "$0/proc"
  chroot "$0" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin DEEPUM_JOBS="$1" bash -c "
    cd /root/checkout
    ./run demo
    ./run test
  "' "$root" "${DEEPUM_JOBS:-$(nproc)}"
rm -rf "$root"
