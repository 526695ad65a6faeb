#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes the folder that a container's image is: a program, the libraries that it loads, and the few
# files that they read.
#
#   packaging/container/rootfs.sh PROGRAM FOLDER      FOLDER must not be there
#
# A program that is linked statically needs no library and gets none.
set -euo pipefail
program=${1:?usage: rootfs.sh PROGRAM FOLDER} root=${2:?usage: rootfs.sh PROGRAM FOLDER}
user=65532

mkdir "$root"
mkdir -p "$root"/{usr/bin,etc/ssl/certs,media,cache,proc,sys,dev,tmp}
# With debug information or without: the caller decides. A link costs no copy.
cp --link "$program" "$root/usr/bin/pagewire" 2>/dev/null || cp "$program" "$root/usr/bin/pagewire"

# "libc.so.6 => /lib/... (0x...)", and the loader alone: "/lib64/... (0x...)".
libraries=$(ldd "$program" 2>/dev/null |
    sed -n 's/^.*=> \(\/[^ ]*\) (.*$/\1/p; s/^\t\(\/[^ ]*\) (.*$/\1/p') || libraries=
for library in $libraries; do
    # Under the name that the program asks for; the loader's own path is in the program.
    install -D -m 755 "$(realpath "$library")" "$root$library"
done
# glibc loads these by name when a host's name is looked up.
for library in /lib/*-linux-gnu/libnss_{dns,files}.so.2 /lib/*-linux-gnu/libresolv.so.2; do
    [[ -n $libraries && -e $library ]] || continue
    install -D -m 755 "$(realpath "$library")" "$root$library"
done

echo "pagewire:x:$user:$user:pagewire:/:/" >"$root/etc/passwd"
echo "pagewire:x:$user:" >"$root/etc/group"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
certificates=/etc/ssl/certs/ca-certificates.crt
[[ ! -e $certificates ]] || cp -L "$certificates" "$root$certificates"
chmod 1777 "$root/tmp"
((EUID != 0)) || chown "$user:$user" "$root/cache"
