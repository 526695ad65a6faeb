# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# For scripts that boot a guest with this host's programs: `source` it.
#
# put ROOT PROGRAM [NAME] copies a program to ROOT/bin, and what it is linked with to its place.
# put_tools ROOT copies the tools named on its input, one a line with the package that has it.
# put_module ROOT MODULES NAME copies a kernel module from the folder MODULES to ROOT/modules.
# put_modules ROOT MODULES VERSION FOLDERS... copies all of some folders, for modprobe to find.
#
# A host without a tool or a module ends the script through its `die`.

put() {
	local root=$1 program=$2 name=${3:-$2} library
	cp -L "$program" "$root/bin/${name##*/}"
	while read -r library; do
		mkdir -p "$root${library%/*}"
		cp -nL "$library" "$root$library"
	done < <(ldd "$program" | grep -o '/[^ ]*' || true)
}

put_tools() {
	local root=$1 tool package path
	while read -r tool package; do
		path=$(type -P "$tool") || die "$tool: not found; apt-get install $package"
		put "$root" "$path"
	done
}

put_module() {
	local root=$1 modules=$2 name=$3 file
	file=$(find "$modules" -name "$name.ko*" | head -n 1)
	case $file in
	*.xz) xz -dc "$file" >"$root/modules/$name.ko" ;;
	*.ko) cp "$file" "$root/modules/$name.ko" ;;
	*) die "$name.ko: not in $modules" ;;
	esac
}

put_modules() {
	local root=$1 modules=$2 version=$3 folder
	shift 3
	for folder; do
		[[ -d $modules/kernel/$folder ]] || die "kernel/$folder: not in $modules"
		mkdir -p "$root/lib/modules/$version/kernel/$folder"
		cp -r "$modules/kernel/$folder/." "$root/lib/modules/$version/kernel/$folder"
	done
	cp "$modules"/modules.{order,builtin,builtin.modinfo} "$root/lib/modules/$version"
	# The guest's modprobe may not unpack what Debian packs.
	find "$root/lib/modules/$version" -name '*.ko.xz' -exec xz -d {} +
	depmod -b "$root" "$version"
}
