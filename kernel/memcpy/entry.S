/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The symbol memcpy: one indirect jump to the variant that was chosen at boot, and the stock
 * routine of the tree that is being built, under other names.
 *
 * Costs every variant, stock included, one jump that is always predicted. The histogram of sizes
 * (sizes.c) is one more target of that jump; while it is off it costs nothing.
 */
#include <linux/export.h>
#include <linux/linkage.h>

/*
 * The tree's own routine, which jumps to its memcpy_orig: alternatives are not patched in UML. Its
 * memcpy becomes a second name of it that nobody calls.
 */
#define __memcpy	pagewire_memcpy_stock
#define memcpy		pagewire_memcpy_stock_alias
#include "../../lib/memcpy_64.S"
#undef __memcpy
#undef memcpy

	.text

	.p2align 5
SYM_FUNC_START(memcpy)
	jmp	*pagewire_memcpy_target(%rip)
SYM_FUNC_END(memcpy)
EXPORT_SYMBOL(memcpy)

SYM_FUNC_ALIAS(__memcpy, memcpy)
EXPORT_SYMBOL(__memcpy)

/* Target while the histogram is on: notes who copies how much, then goes where it would have. */
SYM_FUNC_START(pagewire_memcpy_counted)
	pushq	%rdi
	pushq	%rsi
	pushq	%rdx
	movq	24(%rsp), %rdi
	movq	%rdx, %rsi
	call	pagewire_memcpy_count
	popq	%rdx
	popq	%rsi
	popq	%rdi
	jmp	*pagewire_memcpy_chosen(%rip)
SYM_FUNC_END(pagewire_memcpy_counted)
