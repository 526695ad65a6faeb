/* SPDX-License-Identifier: GPL-2.0 */
/*
 * memcpy of a constant size, resolved at compile time (variant `sized`).
 *
 * UML is compiled with -fno-builtin, so stock calls memcpy even for eight bytes. With `sized` such
 * a copy is a few moves in line (up to 64 bytes), or a routine without branches for its size. The
 * other variants are as stock is, and call memcpy; for which it is, each call site reads one byte
 * (a comparison and a jump that is always predicted, so that one kernel serves all variants).
 *
 * Included by asm/string_64.h of the tree (apply.sh). Not for modules: they lie too far away for
 * the comparison, and call memcpy.
 */
#ifndef _ASM_UM_PAGEWIRE_MEMCPY_H
#define _ASM_UM_PAGEWIRE_MEMCPY_H

#define PAGEWIRE_INLINE_BYTES_MAX	64

void *pagewire_fixed_128(void *to, const void *from, size_t len);
void *pagewire_fixed_256(void *to, const void *from, size_t len);
void *pagewire_fixed_512(void *to, const void *from, size_t len);
void *pagewire_fixed_4096(void *to, const void *from, size_t len);

#define PAGEWIRE_IS_FIXED(len) ((len) <= 512 || (len) == 4096)

/* len: constant, and PAGEWIRE_IS_FIXED. */
static __always_inline void *pagewire_memcpy_fixed(void *to, const void *from, size_t len)
{
	if (len <= PAGEWIRE_INLINE_BYTES_MAX)
		return __builtin_memcpy(to, from, len);
	if (len <= 128)
		return pagewire_fixed_128(to, from, len);
	if (len <= 256)
		return pagewire_fixed_256(to, from, len);
	if (len <= 512)
		return pagewire_fixed_512(to, from, len);
	return pagewire_fixed_4096(to, from, len);
}

#ifndef MODULE
/* In assembly: the code model would have the compiler build the flag's address in ten bytes. */
static __always_inline bool pagewire_memcpy_is_sized(void)
{
	asm goto("cmpb	$0, pagewire_memcpy_constants(%%rip)\n\t"
		 "jne	%l[sized]"
		 : : : "cc" : sized);
	return false;
sized:
	return true;
}

static __always_inline void *pagewire_memcpy(void *to, const void *from, size_t len)
{
	if (__builtin_constant_p(len) && PAGEWIRE_IS_FIXED(len) && pagewire_memcpy_is_sized())
		return pagewire_memcpy_fixed(to, from, len);
	return memcpy(to, from, len);
}

#define memcpy(to, from, len) pagewire_memcpy(to, from, len)
#endif

#endif /* _ASM_UM_PAGEWIRE_MEMCPY_H */
