#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes this machine ready to build and test pagewire, and installs only what is missing.
#
#   scripts/setup.sh demo    what `make demo` needs: a C compiler (it links), OpenSSL and cargo
#   scripts/setup.sh test    also rustfmt, clippy, a C++ compiler (fuzzing), cargo-deny and the
#                            clients the interoperation tests talk to; packages of Python, npm
#                            and Go go to out/test-tools
#
# Debian and Ubuntu packages are installed as root or through sudo that asks no password;
# elsewhere it prints what to install. It exits non-zero only when something is missing that
# nothing works without: a test whose client is missing is skipped, and says so. It may run any
# number of times; with nothing missing it is silent and done in well under a second.
set -euo pipefail
cd "$(dirname "$0")/.."

level=${1:-}
if [[ $# -ne 1 || ($level != demo && $level != test) ]]; then
    echo "usage: scripts/setup.sh demo|test" >&2
    exit 2
fi

CARGO_BIN=${CARGO_HOME:-$HOME/.cargo}/bin
# Debian keeps ip and ethtool where users do not look.
export PATH=$CARGO_BIN:$PATH:/usr/sbin:/sbin
RUST_NEEDED=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
CARGO_DENY_VERSION=0.20
CARGO_DENY_SECONDS_MAX=900
# Packages of Python, npm and Go that tests use; they look for them there.
TEST_TOOLS=out/test-tools
TINK_VERSION=1.16.1
PYAV_VERSION=18.1.0
SSLYZE_VERSION=6.3.1
HLS_JS_VERSION=1.7.4
# The newest version that the Go module proxy serves; newer ones are on GitHub alone. It has no
# go.mod: the versions of what it needs are given here, and are old enough for Go 1.19.
H2SPEC=(
    github.com/summerwind/h2spec@v2.2.1+incompatible
    github.com/fatih/color@v1.15.0
    github.com/spf13/cobra@v1.7.0
    golang.org/x/net@v0.10.0
)
TEST_TOOLS_SECONDS_MAX=300

say() { echo "setup: $*"; }

have() { command -v "$1" >/dev/null 2>&1; }

# A compiler without the C library's headers and start files is found too, and cannot link.
can_link() { # COMPILER LANGUAGE
    have "$1" || return 1
    local folder status=0
    folder=$(mktemp -d)
    "$1" -x "$2" -o "$folder/probe" - <<<'int main(void) { return 0; }' 2>/dev/null || status=1
    rm -rf "$folder"
    return "$status"
}

# Elements and not packages: a list of packages says nothing on other distributions.
have_element() { have gst-inspect-1.0 && gst-inspect-1.0 --exists "$1" 2>/dev/null; }

# Where the crate that binds it looks.
have_openssl() { have pkg-config && pkg-config --exists openssl; }

# The kernel's sources, as Debian packs them.
have_kernel_source() { [[ -e /usr/src/linux-source-6.12.tar.xz ]]; }

can_include() { # HEADER
    can_link cc c && echo "#include <$1>" | cc -fsyntax-only -x c - 2>/dev/null
}

# vlc-bin alone starts and can play nothing. Debian's VLC opens rtsp:// with its SAT>IP plugin,
# others with live555.
have_vlc() {
    have cvlc || return 1
    local plugin
    for plugin in satip live555; do
        compgen -G "/usr/lib*/vlc/plugins/access/lib${plugin}_plugin.so" && return
        compgen -G "/usr/lib/*/vlc/plugins/access/lib${plugin}_plugin.so" && return
    done
    return 1
} >/dev/null

# The system's Python: another one in front of it does not see Debian's packages.
have_python_gst() {
    /usr/bin/python3 -c 'import gi; gi.require_version("Gst", "1.0")' 2>/dev/null
}

have_python_rtsp_server() {
    /usr/bin/python3 -c 'import gi; gi.require_version("GstRtspServer", "1.0")' 2>/dev/null
}

# The module by which GIO, and so rtspsrc, speaks TLS.
have_gio_tls() {
    compgen -G '/usr/lib*/*/gio/modules/libgiognutls.so' >/dev/null ||
        compgen -G '/usr/lib*/gio/modules/libgiognutls.so' >/dev/null
}

have_faketime() {
    compgen -G '/usr/lib*/*/faketime/libfaketimeMT.so.1' >/dev/null ||
        [[ -e /usr/lib64/faketime/libfaketimeMT.so.1 ]]
}

have_python_venv() { /usr/bin/python3 -c 'import venv, ensurepip' 2>/dev/null; }

have_tink() { "$TEST_TOOLS/python/bin/python3" -c 'import tink' 2>/dev/null; }

have_pyav() { "$TEST_TOOLS/python/bin/python3" -c 'import av' 2>/dev/null; }

have_sslyze() { [[ -x $TEST_TOOLS/python/bin/sslyze ]]; }

have_hls_js() {
    grep -q "\"version\": \"$HLS_JS_VERSION\"" \
        "$TEST_TOOLS/node_modules/hls.js/package.json" 2>/dev/null
}

have_h2spec() { [[ -x $TEST_TOOLS/bin/h2spec ]]; }

cargo_version() { cargo --version 2>/dev/null | sed -n 's/^cargo \([0-9.]*\).*/\1/p'; }

is_at_least() { # NEEDED FOUND
    [[ -n $2 && $(printf '%s\n' "$1" "$2" | sort -V | head -n 1) == "$1" ]]
}

cargo_is_new_enough() { is_at_least "$RUST_NEEDED" "$(cargo_version)"; }

# What is looked for at this level: one line each, `check | Debian package | what for`.
wanted() {
    echo "can_link cc c|gcc libc6-dev|linking (required)"
    echo "have_openssl|libssl-dev pkg-config|the OpenSSL that ciphers are compared with (required)"
    [[ $level == test ]] || return 0
    cat <<'EOF'
can_link c++ c++|g++|the fuzz targets
have ffmpeg|ffmpeg|interoperation over RTSP; making test assets
have ffprobe|ffmpeg|counting the frames that arrived
have gst-launch-1.0|gstreamer1.0-tools|interoperation with rtspsrc
have_element decodebin|gstreamer1.0-plugins-base|interoperation with rtspsrc
have_element rtspsrc|gstreamer1.0-plugins-good|interoperation with rtspsrc
have_element tsdemux|gstreamer1.0-plugins-bad|interoperation with rtspsrc
have_element avdec_h264|gstreamer1.0-libav|interoperation with rtspsrc
have_vlc|vlc-bin vlc-plugin-base|interoperation with VLC
have mpv|mpv|interoperation with mpv
have_element rtpmp2tpay|gstreamer1.0-plugins-good|interoperation with GStreamer as a sender
have_element tsparse|gstreamer1.0-plugins-bad|interoperation with GStreamer as a sender
have multicat|multicat|interoperation with multicat as a sender
have curl|curl|interoperation over HTTP
have wget|wget|interoperation over HTTPS
have openssl|openssl|interoperation over HTTPS; opening sealed segments
have_gio_tls|glib-networking|interoperation with rtspsrc over RTSPS
have_python_gst|python3-gi gir1.2-gstreamer-1.0|pausing GStreamer
have_python_rtsp_server|python3-gi gir1.2-gst-rtsp-server-1.0|GStreamer's RTSP server, for lab peers
have ip|iproute2|network namespaces with a sink device
have ethtool|ethtool|a device that segments nothing
have nginx|nginx-light|a web server beside this one, for lab http and lab peers
have chromium|chromium|HLS in a browser
have npm|npm|hls.js, for HLS in a browser
have go|golang-go|h2spec, which tests servers of HTTP/2
have_python_venv|python3-venv|Tink (files sealed in the form gcm), PyAV (AV1 over RTP), sslyze
have_faketime|libfaketime|a wall clock that is set while a channel plays
have setpriv|util-linux|VLC as root; files that nobody may read
have strace|strace|counting the system calls of a path
have valgrind|valgrind|finding stalled loads by a trace of memory
have_kernel_source|linux-source-6.12|the kernel laboratory: User Mode Linux
have flex|flex|the kernel laboratory: User Mode Linux
have bison|bison|the kernel laboratory: User Mode Linux
have bc|bc|the kernel laboratory: User Mode Linux
have xz|xz-utils|the kernel laboratory: User Mode Linux
can_include gelf.h|libelf-dev|the kernel laboratory: modules
have sparse|sparse|the kernel laboratory: checking the modules
have kmod|kmod|the kernel laboratory: the modules of a distribution's kernel
have qemu-system-x86_64|qemu-system-x86|the kernel laboratory: a distribution's kernel
have cpio|cpio|the kernel laboratory: a distribution's kernel
have busybox|busybox-static|the kernel laboratory: a shell for its guests
EOF
}

explain() { # LINES of `wanted`, as a list for people
    awk -F'|' '{ print "setup:   " $2 ": " $3 }' <<<"$1"
}

packages_of() { # LINES of `wanted`
    cut -d'|' -f2 <<<"$1" | tr ' ' '\n' | sort -u
}

missing() { # prints the lines of `wanted` whose check does not hold
    local line
    while IFS= read -r line; do
        # shellcheck disable=SC2086 # a check is a function and its arguments
        ${line%%|*} || echo "$line"
    done < <(wanted)
}

as_root() {
    if ((EUID == 0)); then
        "$@"
    else
        sudo -n "$@"
    fi
}

can_install() {
    have apt-get && { ((EUID == 0)) || { have sudo && sudo -n true 2>/dev/null; }; }
}

lists_are_fresh=no
apt_install() { # PACKAGE...
    if [[ $lists_are_fresh == no ]]; then
        say "apt-get update"
        as_root apt-get update -q >/dev/null || say "apt-get update: it complained; going on"
        lists_are_fresh=yes
    fi
    say "apt-get install $*"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q \
        -o DPkg::Lock::Timeout=300 --no-install-recommends "$@" </dev/null >/dev/null
}

install_packages() {
    local lines=$1 packages
    mapfile -t packages < <(packages_of "$lines")
    apt_install "${packages[@]}" && return
    # One name this release does not have must not keep the others out.
    local package
    for package in "${packages[@]}"; do
        apt_install "$package" || say "$package: could not be installed; going on without"
    done
}

# The usual installer first: distributions seldom carry a Rust that is new enough.
install_rust() {
    if have rustup; then
        say "rustup: no toolchain that runs; installing stable"
        rustup toolchain install stable --profile minimal -c rustfmt -c clippy &&
            rustup default stable
        return
    fi
    have curl || ! can_install || apt_install curl ca-certificates || true
    if have curl; then
        say "Rust: none found; installing the stable toolchain to $CARGO_BIN"
        if curl --proto '=https' --tlsv1.2 -sSf --retry 2 https://sh.rustup.rs |
            RUSTUP_INIT_SKIP_PATH_CHECK=yes sh -s -- -y -q --no-modify-path \
                --profile minimal -c rustfmt -c clippy; then
            say "Rust: for your own shell, put $CARGO_BIN into PATH"
            return
        fi
    fi
    local candidate
    candidate=$(apt-cache policy rustc 2>/dev/null | sed -n 's/^ *Candidate: \([0-9.]*\).*/\1/p')
    if can_install && is_at_least "$RUST_NEEDED" "$candidate"; then
        say "Rust: the installer could not be fetched; this distribution's will do"
        apt_install cargo rustfmt rust-clippy
    fi
}

require_rust() {
    local version
    cargo_is_new_enough && return
    version=$(cargo_version)
    # A toolchain that somebody chose is not changed behind their back.
    if [[ -n $version ]] && have rustup; then
        say "cargo $version: pagewire needs $RUST_NEEDED; run: rustup update stable" >&2
        return 1
    fi
    install_rust || true
    hash -r
    cargo_is_new_enough && return
    version=$(cargo_version)
    say "cargo: ${version:-none} found, $RUST_NEEDED needed; install Rust from" \
        "https://rustup.rs and run this again" >&2
    return 1
}

require_component() { # SUBCOMMAND COMPONENT DEBIAN_PACKAGE
    cargo "$1" --version >/dev/null 2>&1 && return
    say "$2: missing; installing"
    if have rustup; then
        rustup component add "$2" || true
    elif can_install; then
        apt_install "$3" || true
    fi
    cargo "$1" --version >/dev/null 2>&1 && return
    say "cargo $1: not there; install the $2 component of your Rust toolchain" >&2
    return 1
}

# Optional: `make test` skips its check without it.
want_cargo_deny() {
    have cargo-deny && return
    say "cargo-deny: missing; building it from source, two minutes on two cores"
    local log
    log=$(mktemp)
    if timeout "$CARGO_DENY_SECONDS_MAX" cargo install --quiet --locked --no-default-features \
        --version "^$CARGO_DENY_VERSION" cargo-deny >"$log" 2>&1; then
        say "cargo-deny: installed to $CARGO_BIN"
    else
        say "cargo-deny: could not be built; going on without: $(tail -n 1 "$log")"
    fi
    rm -f "$log"
}

# Optional, as cargo-deny.
want_test_tool() { # NAME FUNCTION: that installs it
    local log
    say "$1: missing; installing to $TEST_TOOLS"
    log=$(mktemp)
    mkdir -p "$TEST_TOOLS"
    "$2" >"$log" 2>&1 || say "$1: could not be installed; going on without: $(tail -n 1 "$log")"
    rm -f "$log"
}

install_for_python() { # PACKAGE
    /usr/bin/python3 -m venv "$TEST_TOOLS/python" &&
        timeout "$TEST_TOOLS_SECONDS_MAX" "$TEST_TOOLS/python/bin/pip" install \
            --disable-pip-version-check "$1"
}

install_tink() { install_for_python "tink==$TINK_VERSION"; }

install_pyav() { install_for_python "av==$PYAV_VERSION"; }

install_sslyze() { install_for_python "sslyze==$SSLYZE_VERSION"; }

install_hls_js() {
    timeout "$TEST_TOOLS_SECONDS_MAX" npm install --prefix "$TEST_TOOLS" --no-audit --no-fund \
        --no-save "hls.js@$HLS_JS_VERSION"
}

# A module of its own, as the versions above are not those of the newest.
install_h2spec() {
    local folder target=$PWD/$TEST_TOOLS/bin status=0
    folder=$(mktemp -d)
    (
        cd "$folder" && go mod init test-tools &&
            timeout "$TEST_TOOLS_SECONDS_MAX" go get "${H2SPEC[@]}" &&
            GOBIN=$target timeout "$TEST_TOOLS_SECONDS_MAX" \
                go install github.com/summerwind/h2spec/cmd/h2spec
    ) || status=1
    rm -rf "$folder"
    return "$status"
}

lines=$(missing)
if [[ -n $lines ]] && can_install; then
    say "missing:"
    explain "$lines"
    install_packages "$lines"
    lines=$(missing)
fi
if [[ -n $lines ]]; then
    {
        say "still missing, and could not be installed from here:"
        explain "$lines"
        say "please run: sudo apt-get install $(packages_of "$lines" | tr '\n' ' ')"
        say "(on another distribution: its packages of the same programs)"
    } >&2
fi

ready=yes
grep -q '(required)' <<<"$lines" && ready=no
require_rust || ready=no
if [[ $level == test && $ready == yes ]]; then
    require_component fmt rustfmt rustfmt || ready=no
    require_component clippy clippy rust-clippy || ready=no
    want_cargo_deny
    have_tink || want_test_tool "Tink for Python" install_tink
    have_pyav || want_test_tool "PyAV, with a newer FFmpeg" install_pyav
    have_sslyze || want_test_tool sslyze install_sslyze
    have_hls_js || want_test_tool hls.js install_hls_js
    have_h2spec || want_test_tool h2spec install_h2spec
fi
[[ $ready == yes ]]
