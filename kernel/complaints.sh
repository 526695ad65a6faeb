# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Patterns of errors in a guest's kernel log. Sourced by uml/boot.sh and qemu/boot.sh.

# Lockdep, kmemleak and the like say INFO or BUG; the last is the self-test of memcpy.
COMPLAINTS='BUG: |WARNING: |Oops|Kernel panic|kernel BUG at|general protection|INFO: possible|'
COMPLAINTS+='INFO: task .* blocked|new suspected memory leaks|refcount_t: |soft lockup|'
COMPLAINTS+='pagewire_memcpy: .* bad=[1-9]'

# complaint LOG: prints its first complaint; fails when there is none (needs pipefail).
complaint() {
	grep -m 1 -E "$COMPLAINTS" "$1" | tr -d '\r'
}
