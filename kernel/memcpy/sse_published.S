/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Variant `sse_published`: memcpy as published in simd-copy (figure 5), kept for comparison.
 *
 * A loop of 512 bytes a turn by movdqu; what is left, also nothing, by string instructions. That
 * rest is why it loses today: two string instructions cost 20 to 40 ns even for zero bytes, more
 * than the loop saves below 1 KiB, and a size below 512 is nothing but rest.
 *
 * Source: Saito, Oikawa, "Utilization of a SIMD unit in the OS Kernel", section 6.
 */
#include <linux/linkage.h>

#define TURN_SHIFT	9

	.text

SYM_FUNC_START(pagewire_memcpy_sse_published)
	movq	%rdi, %rax
	movq	%rdx, %rcx
	shrq	$TURN_SHIFT, %rcx
	jz	.Lrest
	.p2align 4
.Lturn:
	.irp	offset, 0x000, 0x080, 0x100, 0x180
	movdqu	\offset+0x00(%rsi), %xmm0
	movdqu	\offset+0x10(%rsi), %xmm1
	movdqu	\offset+0x20(%rsi), %xmm2
	movdqu	\offset+0x30(%rsi), %xmm3
	movdqu	\offset+0x40(%rsi), %xmm4
	movdqu	\offset+0x50(%rsi), %xmm5
	movdqu	\offset+0x60(%rsi), %xmm6
	movdqu	\offset+0x70(%rsi), %xmm7
	movdqu	%xmm0, \offset+0x00(%rdi)
	movdqu	%xmm1, \offset+0x10(%rdi)
	movdqu	%xmm2, \offset+0x20(%rdi)
	movdqu	%xmm3, \offset+0x30(%rdi)
	movdqu	%xmm4, \offset+0x40(%rdi)
	movdqu	%xmm5, \offset+0x50(%rdi)
	movdqu	%xmm6, \offset+0x60(%rdi)
	movdqu	%xmm7, \offset+0x70(%rdi)
	.endr
	addq	$1 << TURN_SHIFT, %rsi
	addq	$1 << TURN_SHIFT, %rdi
	decq	%rcx
	jnz	.Lturn
.Lrest:
	andl	$(1 << TURN_SHIFT) - 1, %edx
	movl	%edx, %ecx
	shrl	$3, %ecx
	rep movsq
	movl	%edx, %ecx
	andl	$7, %ecx
	rep movsb
	RET
SYM_FUNC_END(pagewire_memcpy_sse_published)
