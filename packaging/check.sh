#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Checks the packages of out/deb as a machine that has never seen pagewire would: lintian; a clean
# Debian in a folder, into which they are installed; the service's own command, as its user and
# without systemd; a clip that is played and downloaded; purge, and what is left behind.
#
#   packaging/check.sh        as root, with mmdebstrap and lintian; about three minutes
#
# The clean Debian comes by apt's sources of this host and is kept in out/deb-root.tar. Status 1
# when a check fails, 77 when something that it needs is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "check: $*"; }
missing() { say "skipped: $*" && exit 77; }
fail() { say "FAILED: $*" && exit 1; }

for program in curl lintian mmdebstrap setpriv; do
    command -v "$program" >/dev/null || missing "$program: not found; apt-get install $program"
done
((EUID == 0)) || missing "not root, who alone may enter a chroot"
shopt -s nullglob
packages=(out/deb/pagewire_*.deb) engines=(out/deb/pagewire-dkms_*.deb)
((${#packages[@]} == 1 && ${#engines[@]} == 1)) || fail "out/deb has no packages; run make deb"
package=${packages[0]} engine=${engines[0]}

say "lintian: errors and warnings count"
lintian --fail-on error,warning --profile debian --suppress-tags \
    initial-upload-closes-no-bugs "$package" "$engine" || fail "lintian"

root=$(mktemp -d --tmpdir pagewire-root.XXXXXX)
server=
leave() {
    [[ -z $server ]] || kill "$server" 2>/dev/null || true
    mountpoint -q "$root/proc" && umount "$root/proc"
    rm -rf "$root"
}
trap leave EXIT

tarball=out/deb-root.tar
suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
if [[ ! -s $tarball ]]; then
    say "a clean $suite, kept in $tarball"
    mmdebstrap --quiet --variant=apt --format=tar "$suite" "$tarball.part"
    mv "$tarball.part" "$tarball"
fi
tar -C "$root" -xf "$tarball"
mount -t proc proc "$root/proc"
cp /etc/resolv.conf "$root/etc/resolv.conf"
inside() { chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@"; }

before=$(cd "$root" && find etc usr var/lib var/cache var/log -path var/lib/dpkg -prune -o \
    -path var/lib/apt -prune -o -path var/cache/apt -prune -o -print | sort)
say "apt install"
cp "$package" "$root/tmp/pagewire.deb"
inside apt-get update -q >/dev/null
inside apt-get install -y -q --no-install-recommends /tmp/pagewire.deb >"$root/tmp/log" 2>&1 ||
    { cat "$root/tmp/log" && fail "apt install"; }
inside getent passwd pagewire >/dev/null || fail "there is no user pagewire"
mode=$(stat -c '%a %U' "$root/etc/pagewire/pagewire.toml")
[[ $mode == "640 root" ]] || fail "pagewire.toml is $mode"

say "the service's command, as its user, without systemd"
cp pagewire/assets/clip.ts "$root/var/lib/pagewire/media/clip.ts"
command=$(sed -n 's/^ExecStart=//p' "$root/usr/lib/systemd/system/pagewire.service")
# shellcheck disable=SC2086  # the command's words
chroot "$root" setpriv --reuid=pagewire --regid=pagewire --init-groups --no-new-privs \
    $command --log info --rtsp 127.0.0.1:0 --http 127.0.0.1:0 >"$root/tmp/out" 2>"$root/tmp/err" &
server=$!
for _ in {1..100}; do
    grep -qs '^pagewire ready' "$root/tmp/out" && break
    kill -0 "$server" 2>/dev/null || { cat "$root/tmp/err" && fail "it ended at once"; }
    sleep 0.1
done
read -r _ _ rtsp http < <(grep '^pagewire ready' "$root/tmp/out") ||
    { cat "$root/tmp/err" && fail "no ready line in 10 s"; }
user=$(stat -c %u "/proc/$server")
[[ $user == "$(inside id -u pagewire)" ]] || fail "it runs as user $user"
say "serving $rtsp and $http"
grep -q 'sandbox: .*confined' "$root/tmp/err" || say "note: no sandbox on this kernel"
curl -sf -m 10 -o /dev/null "$http/.pagewire/0/hls.js" || fail "the page has no hls.js"
inside pagewire play "$rtsp/clip.ts" >"$root/tmp/played" ||
    { cat "$root/tmp/played" "$root/tmp/err" && fail "the clip does not play"; }
inside pagewire play "$http/clip.ts" --output /tmp/clip.ts >"$root/tmp/played" ||
    { cat "$root/tmp/played" && fail "the clip is not downloaded"; }
cmp pagewire/assets/clip.ts "$root/tmp/clip.ts" || fail "the download differs"

say "a user, by a reload"
echo secret | inside pagewire passwd /etc/pagewire/users anna || fail "passwd"
sed -i 's/^# users = /users = /' "$root/etc/pagewire/pagewire.toml"
kill -HUP "$server"
status() { curl -s -m 10 -o "$root/tmp/clip.ts" -w '%{http_code}' "$@" "$http/clip.ts"; }
for _ in {1..100}; do
    [[ $(status) == 401 ]] && break
    sleep 0.1
done
[[ $(status) == 401 ]] || { cat "$root/tmp/err" && fail "it is open still"; }
[[ $(status -u anna:other) == 401 ]] || fail "another password opens it"
[[ $(status -u anna:secret) == 200 ]] || fail "her password does not open it"
cmp pagewire/assets/clip.ts "$root/tmp/clip.ts" || fail "her download differs"
kill -TERM "$server"
wait "$server" || fail "status $? after SIGTERM"
server=

say "an upgrade, under a systemd that records what it is told"
mkdir -p "$root/run/systemd/system" "$root/usr/local/bin"
cat >"$root/usr/local/bin/systemctl" <<'END'
#!/bin/sh
echo "$*" >>/tmp/systemctl
END
chmod 755 "$root/usr/local/bin/systemctl"
inside env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    dpkg -i /tmp/pagewire.deb >"$root/tmp/log" 2>&1 ||
    { cat "$root/tmp/log" && fail "installing it once more"; }
asked=$root/tmp/systemctl
[[ -s $asked ]] || fail "systemctl was not called"
grep -qx 'kill --signal=USR2 --kill-whom=main pagewire.service' "$asked" ||
    { cat "$asked" && fail "the running server is not told of the new program"; }
grep -qx -- '--system daemon-reload' "$asked" ||
    { cat "$asked" && fail "units are not read again"; }
if grep -Eq '(^| )(stop|restart|try-restart|disable)( |$)' "$asked"; then
    cat "$asked" && fail "the upgrade stops the service"
fi
rm -r "$root/usr/local/bin/systemctl" "$root/run/systemd/system" "$asked"

say "man pages and completions"
for page in pagewire pagewire-serve; do
    zcat "$root/usr/share/man/man1/$page.1.gz" | man --warnings -E UTF-8 -l -Tutf8 -Z - \
        2>"$root/tmp/man" >/dev/null || fail "$page.1"
    [[ ! -s $root/tmp/man ]] || { cat "$root/tmp/man" && fail "$page.1 has warnings"; }
done
inside bash -n /usr/share/bash-completion/completions/pagewire || fail "the completion of bash"

say "purge"
inside apt-get purge -y -q pagewire >"$root/tmp/log" 2>&1 ||
    { cat "$root/tmp/log" && fail "purge"; }
inside apt-get autoremove -y -q --purge >/dev/null 2>&1
after=$(cd "$root" && find etc usr var/lib var/cache var/log -path var/lib/dpkg -prune -o \
    -path var/lib/apt -prune -o -path var/cache/apt -prune -o -print | sort)
left=$(comm -13 <(echo "$before") <(echo "$after") | grep pagewire || true)
# What the administrator made stays.
films='etc/pagewire
etc/pagewire/users
var/lib/pagewire
var/lib/pagewire/media
var/lib/pagewire/media/clip.ts'
[[ $left == "$films" ]] || fail "left behind, beside films and users: $left"
say "all of it holds; films and users stay where they were"
