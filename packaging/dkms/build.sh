#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds pagewire-dkms, the package of the in-kernel engine's source, which DKMS builds for each
# kernel of the machine.
#
#   packaging/dkms/build.sh FOLDER      the package goes there
#
# Needs dpkg-deb and fakeroot alone: nothing is compiled here.
set -euo pipefail
target=$(realpath "${1:?usage: packaging/dkms/build.sh FOLDER}")
cd "$(dirname "$0")/../.."

version=$(sed -n 's/^PACKAGE_VERSION="\(.*\)"$/\1/p' kernel/rtp/dkms.conf)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

sources=usr/src/pagewire-rtp-$version
install -d "$root/DEBIAN" "$root/$sources" "$root/usr/lib/udev/rules.d" \
    "$root/usr/lib/modules-load.d" "$root/usr/include/linux" "$root/usr/share/doc/pagewire-dkms"
# The engine alone: its checks and their scripts stay in the repository.
install -m 644 kernel/rtp/*.[ch] kernel/rtp/Kbuild kernel/rtp/Makefile kernel/rtp/dkms.conf \
    "$root/$sources"
cp -r kernel/rtp/include "$root/$sources/include"
chmod -R u=rwX,go=rX "$root/$sources"
install -m 644 kernel/rtp/60-pagewire-rtp.rules "$root/usr/lib/udev/rules.d"
install -m 644 kernel/rtp/pagewire-rtp.modules-load "$root/usr/lib/modules-load.d/pagewire-rtp.conf"
install -m 644 packaging/debian/copyright "$root/usr/share/doc/pagewire-dkms/copyright"
sed 's/^pagewire (/pagewire-dkms (/' packaging/debian/changelog | gzip -9n \
    >"$root/usr/share/doc/pagewire-dkms/changelog.Debian.gz"
install -m 644 kernel/rtp/include/uapi/linux/pagewire_rtp.h "$root/usr/include/linux"

cat >"$root/DEBIAN/control" <<CONTROL
Package: pagewire-dkms
Version: $version-1
Section: kernel
Priority: optional
Architecture: all
Maintainer: pagewire maintainers <maintainers@pagewire.invalid>
Depends: adduser, dkms (>= 2.1.0.0)
Recommends: pagewire
Description: in-kernel RTP engine of pagewire (DKMS)
 A module for the kernels of this machine, with which pagewire sends a batch of
 RTP packets from the page cache in one call, their headers made in the kernel.
 .
 DKMS builds it for each installed kernel whose headers are there. pagewire
 works without it, and uses it only where it is told to or finds it cheaper.
CONTROL
install -m 755 packaging/dkms/postinst packaging/dkms/prerm "$root/DEBIAN"
sed -i "s/@VERSION@/$version/" "$root/DEBIAN/postinst" "$root/DEBIAN/prerm"
(cd "$root" && find usr -type f -exec md5sum {} + >DEBIAN/md5sums)
chmod 644 "$root/DEBIAN/md5sums" "$root/DEBIAN/control"
fakeroot dpkg-deb --build -Zxz "$root" "$target/pagewire-dkms_$version-1_all.deb" >/dev/null
