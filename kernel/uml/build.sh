#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# Builds User Mode Linux 6.12 for the kernel laboratory, or finds it built.
#
#   kernel/uml/build.sh [--found] [plain|gprof|check|kasan|vectorise]
#
# PROFILE.config says what each is for. With --found nothing is built: status 3 when it is not
# there.
#
# Prints linux=PATH (the kernel, a program), build=PATH (its O= folder, for modules:
# make -C SOURCE ARCH=um O=BUILD M=FOLDER modules), source=PATH and log=PATH (of the build);
# progress goes to stderr. Status 77 when this host lacks something, which the last line names with
# what to install. The first call takes about 5 minutes on 2 cores and 2 GB of disk; the
# next less than a second. What was built lies in ${PAGEWIRE_CACHE:-~/.cache/pagewire}/kernel,
# under a hash of all it was made from: configuration, the files laid over the tree
# (kernel/memcpy), kernel source, compiler. When only files laid over changed, the objects of an
# earlier build are taken over and make does the rest. Two at once wait for each other. No root
# rights needed.
#
# The source is Debian's package linux-source-6.12, whichever point release is installed; another
# tar file of the kernel's source: LINUX_SOURCE=linux-6.12.58.tar.xz.
set -euo pipefail
cd "$(dirname "$0")"

# Builds of a profile that are kept, 110 MB each: those of a few branches.
BUILDS_KEPT=4
PACKAGES='linux-source-6.12 gcc libc6-dev make flex bison bc xz-utils'
LOG_LINES_SHOWN=20
# Registers of the host's floating point and vectors, of any host: AMX's tiles are 8 KiB of them.
HOST_FP_BYTES=12288
# Options of simd-copy's compiler (-ftree-vectorize, and to report), in today's spelling.
# -msse2 gives back what UML's makefile takes away.
VECTORISE_FLAGS='-O2 -ftree-vectorize -fvect-cost-model=dynamic -msse2 -fopt-info-vec-optimized'

UNFIT_HOST=77

say() { echo "uml: $*" >&2; }
die() { say "$*"; exit 1; }
# This host lacks something: no failure, and the line says what to do.
unfit() { say "$*"; exit $UNFIT_HOST; }

found=no
if [[ ${1:-} == --found ]]; then
    found=yes
    shift
fi
profile=${1:-plain}
if [[ $# -gt 1 || ! -f $profile.config || $profile == base ]]; then
    echo 'usage: kernel/uml/build.sh [--found] [plain|gprof|check|kasan|vectorise]' >&2
    exit 2
fi
[[ $(uname -m) == x86_64 ]] || unfit "this machine is $(uname -m); the laboratory is for x86_64"
for program in gcc make flex bison bc xz tar flock sha256sum; do
    command -v "$program" >/dev/null ||
        unfit "$program: not installed; apt-get install --no-install-recommends $PACKAGES"
done
tarball=${LINUX_SOURCE:-/usr/src/linux-source-6.12.tar.xz}
[[ -r $tarball ]] ||
    unfit "$tarball: not installed; apt-get install --no-install-recommends $PACKAGES"

cache=${PAGEWIRE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pagewire}/kernel
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)

hash_of() { sha256sum | cut -c1-12; }
# Name, size and time of the tar file stand for its contents: reading 150 MB takes longer than
# a call that finds everything built may.
source_hash=$(stat -c '%n %s %Y' "$tarball" | sed 's,.*/,,' | hash_of)
# The vectoriser's kernel is stock, and KASAN has a memcpy of its own before the tree's.
overlay=()
[[ $profile =~ ^(vectorise|kasan)$ ]] || overlay=(../memcpy/*.[chS] ../memcpy/apply.sh)
# Builds that are alike in this may take each other's objects.
objects_hash=$({ cat base.config "$profile.config"; gcc --version; echo "$source_hash"; } | hash_of)
hash=$({ echo "$objects_hash"; cat build.sh "${overlay[@]}"; } | hash_of)
pristine=$cache/source-$source_hash
folder=$cache/uml-$profile-$hash
source=$folder/source
# Below the source: kbuild then refers to it by relative paths, so objects stay valid elsewhere.
build=$source/B

answer() {
    printf '%s\n' "linux=$build/linux" "build=$build" "source=$source" "log=$folder/log"
    exit 0
}
[[ ! -f $folder/done ]] || answer
[[ $found == no ]] || { say "profile $profile: not built"; exit 3; }
exec 9>"$folder.lock"
flock --nonblock 9 || { say "the same build is running; waiting for it"; flock 9; }
[[ ! -f $folder/done ]] || answer

exec 8>"$pristine.lock"
flock 8
if [[ ! -f $pristine/done ]]; then
    say "unpacking $tarball"
    rm -rf "$pristine"
    mkdir -p "$pristine/tree"
    tar -xf "$tarball" -C "$pristine/tree" --strip-components=1
    touch "$pristine/done"
fi
exec 8>&-

# The newest finished build with the same objects_hash, if there is one.
earlier() {
    local newest='' file
    for file in "$cache/uml-$profile-"*/done; do
        [[ -f $file && $(cat "${file%/*}/objects") == "$objects_hash" ]] || continue
        [[ -n $newest && ! $file -nt $newest ]] || newest=$file
    done
    echo "${newest%/*}"
}

rm -rf "$folder"
mkdir -p "$folder"
# Hard links, except what make writes: no file of the tree may be written into, only replaced.
seed=$(earlier)
if [[ -n $seed && $profile != vectorise ]]; then
    say "taking over what did not change from ${seed##*/}"
    cp -al "$seed/source" "$source"
    rm -rf "$build"
    cp -a "$seed/source/B" "$build"
else
    cp -al "$pristine/tree" "$source"
    mkdir "$build"
fi
flags=()
[[ $profile != vectorise ]] || flags=("KCFLAGS=$VECTORISE_FLAGS")
if ((${#overlay[@]} > 0)); then
    ../memcpy/apply.sh "$pristine/tree" "$source"
fi

# A host with AMX has 11 KB of registers; it refuses to set fewer (EFAULT), and this kernel, which
# reserves 2696 bytes, panics: "ptrace set fp regs failed". A host takes no more than it has. Newer
# kernels ask it for the size.
replace_in_source() {
    local file=$source/$1
    sed "$2" "$pristine/tree/$1" >"$file.new"
    ! cmp --silent "$file.new" "$pristine/tree/$1" || die "$1: not as expected: ${2}"
    cmp --silent "$file.new" "$file" || cp --remove-destination "$file.new" "$file"
    rm "$file.new"
}
replace_in_source arch/x86/um/user-offsets.c \
    "s/DEFINE_LONGS(HOST_FP_SIZE, 2696)/DEFINE_LONGS(HOST_FP_SIZE, $HOST_FP_BYTES)/"

export KBUILD_BUILD_USER=pagewire KBUILD_BUILD_HOST=uml LC_ALL=C
run_make() {
    make -C "$source" ARCH=um O="$build" "$@" </dev/null >>"$folder/log" 2>&1 && return
    tail -n "$LOG_LINES_SHOWN" "$folder/log" >&2
    die "make $*: failed; the whole log: $folder/log"
}
# A profile's line goes before that of base.config.
cat base.config "$profile.config" | tac |
    awk -F= '!/^CONFIG_/ || !seen[$1]++' | tac >"$folder/fragment"
run_make KCONFIG_ALLCONFIG="$folder/fragment" allnoconfig
missing=$(grep -E '^CONFIG_' "$folder/fragment" | grep -vxFf "$build/.config" || true)
[[ -z $missing ]] || die "this kernel did not take these lines of the configuration:
$missing"

say "building the kernel, profile $profile: about 5 minutes on 2 cores; log: $folder/log"
run_make -j"$(nproc)" "${flags[@]}" linux modules
echo "$objects_hash" >"$folder/objects"
touch "$folder/done"
# The oldest go; a kernel that runs from one runs on.
find "$cache" -maxdepth 2 -path "*/uml-$profile-*/done" -printf '%T@ %h\n' | sort -rn |
    sed "1,${BUILDS_KEPT}d; s/^[^ ]* //" | xargs -r rm -rf
say "built in $SECONDS s"
answer
