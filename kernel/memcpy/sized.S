/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Variant `sized`: memcpy fitted to the sizes that User Mode Linux copies.
 *
 * The study's two proposals (section 8). Its first, a routine without branches for each constant
 * size, is constant.h, which resolves sizes at compile time and enters at pagewire_fixed_*: the
 * same code, behind the branches that a known size answers. Its second, the loop's width fitted
 * to the sizes seen: the histogram (sizes.c) shows two heaps, fields of up to 64 bytes and whole
 * pages (copies from and to user memory go page by page). So the ladder asks for these two first;
 * its loop is as narrow as saturates the stores, 128 bytes a turn, so that little is left over.
 *
 * What is small is in the first cache, and 32-byte registers halve the time (4 KiB: 35 ns, by
 * 16-byte registers 65, stock 97). Pages seldom are: between larger caches 16-byte moves are as
 * fast (256 KiB, page by page: 74 ns a page, by 32-byte registers 72, stock 131), and where pages
 * of the target come from the last cache they are faster, as if the processor's prefetcher looked
 * at the number of stores to a line. Tried and slower: prefetching the target or the next page,
 * four streams of 1 KiB. Measured on AMD Zen 4; elsewhere avx2 may well be ahead.
 *
 * Sources: Saito, Oikawa, "Utilization of a SIMD unit in the OS Kernel", section 8; Intel 64 and
 * IA-32 Architectures Optimization Reference Manual, section 15.16 (vzeroupper).
 */
#include <linux/linkage.h>
#include "small.h"

#define PAGE_BYTES	4096
#define TURN_BYTES	128
/* From here on what is copied counts as not cached near. */
#define FAR_BYTES	2048

.macro NEXT_TURN
	addq	$TURN_BYTES, %rsi
	addq	$TURN_BYTES, %rdi
.endm

.macro MOVE_TURN_NEAR
	vmovdqu	0x00(%rsi), %ymm0
	vmovdqu	0x20(%rsi), %ymm1
	vmovdqu	0x40(%rsi), %ymm2
	vmovdqu	0x60(%rsi), %ymm3
	vmovdqu	%ymm0, 0x00(%rdi)
	vmovdqu	%ymm1, 0x20(%rdi)
	vmovdqu	%ymm2, 0x40(%rdi)
	vmovdqu	%ymm3, 0x60(%rdi)
	NEXT_TURN
.endm

.macro MOVE_TURN_FAR
	vmovdqu	0x00(%rsi), %xmm0
	vmovdqu	0x10(%rsi), %xmm1
	vmovdqu	0x20(%rsi), %xmm2
	vmovdqu	0x30(%rsi), %xmm3
	vmovdqu	0x40(%rsi), %xmm8
	vmovdqu	0x50(%rsi), %xmm9
	vmovdqu	0x60(%rsi), %xmm10
	vmovdqu	0x70(%rsi), %xmm11
	vmovdqu	%xmm0, 0x00(%rdi)
	vmovdqu	%xmm1, 0x10(%rdi)
	vmovdqu	%xmm2, 0x20(%rdi)
	vmovdqu	%xmm3, 0x30(%rdi)
	vmovdqu	%xmm8, 0x40(%rdi)
	vmovdqu	%xmm9, 0x50(%rdi)
	vmovdqu	%xmm10, 0x60(%rdi)
	vmovdqu	%xmm11, 0x70(%rdi)
	NEXT_TURN
.endm

	.text
	.p2align 6

SYM_FUNC_START(pagewire_memcpy_sized)
	movq	%rdi, %rax
	cmpq	$16, %rdx
	jbe	.Lup_to_16
	cmpq	$256, %rdx
	ja	.Labove_256
	cmpq	$32, %rdx
	jbe	.Lup_to_32
	cmpq	$64, %rdx
	jbe	.Lup_to_64
	cmpq	$128, %rdx
	jbe	.Lup_to_128
	jmp	.Lup_to_256

	.p2align 5
.Labove_256:
	/* The last turn, which overlaps the one before: loaded now, stored at the end. */
	vmovdqu	-0x80(%rsi, %rdx), %ymm4
	vmovdqu	-0x60(%rsi, %rdx), %ymm5
	vmovdqu	-0x40(%rsi, %rdx), %ymm6
	vmovdqu	-0x20(%rsi, %rdx), %ymm7
	leaq	-TURN_BYTES(%rdi, %rdx), %rcx
	cmpq	$FAR_BYTES, %rdx
	jae	.Lturn_far
	.p2align 5
.Lturn:
	MOVE_TURN_NEAR
	cmpq	%rcx, %rdi
	jb	.Lturn
.Llast_turn:
	vmovdqu	%ymm4, 0x00(%rcx)
	vmovdqu	%ymm5, 0x20(%rcx)
	vmovdqu	%ymm6, 0x40(%rcx)
	vmovdqu	%ymm7, 0x60(%rcx)
	vzeroupper
	RET
	.p2align 5
.Lturn_far:
	MOVE_TURN_FAR
	cmpq	%rcx, %rdi
	jb	.Lturn_far
	jmp	.Llast_turn

	.p2align 4
.Lup_to_16:
	RETURN_UP_TO_16
	.p2align 4
.Lup_to_32:
	RETURN_16_TO_32
	.p2align 4
.Lup_to_64:
	vmovdqu	(%rsi), %ymm0
	vmovdqu	-0x20(%rsi, %rdx), %ymm1
	vmovdqu	%ymm0, (%rdi)
	vmovdqu	%ymm1, -0x20(%rdi, %rdx)
	vzeroupper
	RET

	.p2align 4
SYM_INNER_LABEL(pagewire_fixed_128, SYM_L_GLOBAL)	/* 64 to 128 bytes */
	movq	%rdi, %rax
.Lup_to_128:
	vmovdqu	0x00(%rsi), %ymm0
	vmovdqu	0x20(%rsi), %ymm1
	vmovdqu	-0x40(%rsi, %rdx), %ymm2
	vmovdqu	-0x20(%rsi, %rdx), %ymm3
	vmovdqu	%ymm0, 0x00(%rdi)
	vmovdqu	%ymm1, 0x20(%rdi)
	vmovdqu	%ymm2, -0x40(%rdi, %rdx)
	vmovdqu	%ymm3, -0x20(%rdi, %rdx)
	vzeroupper
	RET

	.p2align 4
SYM_INNER_LABEL(pagewire_fixed_256, SYM_L_GLOBAL)	/* 128 to 256 bytes */
	movq	%rdi, %rax
.Lup_to_256:
	vmovdqu	0x00(%rsi), %ymm0
	vmovdqu	0x20(%rsi), %ymm1
	vmovdqu	0x40(%rsi), %ymm2
	vmovdqu	0x60(%rsi), %ymm3
	vmovdqu	-0x80(%rsi, %rdx), %ymm4
	vmovdqu	-0x60(%rsi, %rdx), %ymm5
	vmovdqu	-0x40(%rsi, %rdx), %ymm6
	vmovdqu	-0x20(%rsi, %rdx), %ymm7
	vmovdqu	%ymm0, 0x00(%rdi)
	vmovdqu	%ymm1, 0x20(%rdi)
	vmovdqu	%ymm2, 0x40(%rdi)
	vmovdqu	%ymm3, 0x60(%rdi)
	vmovdqu	%ymm4, -0x80(%rdi, %rdx)
	vmovdqu	%ymm5, -0x60(%rdi, %rdx)
	vmovdqu	%ymm6, -0x40(%rdi, %rdx)
	vmovdqu	%ymm7, -0x20(%rdi, %rdx)
	vzeroupper
	RET
SYM_FUNC_END(pagewire_memcpy_sized)

/* 256 to 512 bytes: the study's memcpy_512, for sizes below it too. */
SYM_FUNC_START(pagewire_fixed_512)
	movq	%rdi, %rax
	.irp	offset, 0x00, 0x20, 0x40, 0x60, 0x80, 0xa0, 0xc0, 0xe0
	vmovdqu	\offset(%rsi), %ymm0
	vmovdqu	\offset-0x100(%rsi, %rdx), %ymm1
	vmovdqu	%ymm0, \offset(%rdi)
	vmovdqu	%ymm1, \offset-0x100(%rdi, %rdx)
	.endr
	vzeroupper
	RET
SYM_FUNC_END(pagewire_fixed_512)

/* One page: no size to look at. %rdx, the size, is not used. */
SYM_FUNC_START(pagewire_fixed_4096)
	movq	%rdi, %rax
	movl	$PAGE_BYTES / TURN_BYTES, %ecx
	.p2align 5
.Lpage_turn:
	MOVE_TURN_FAR
	decl	%ecx
	jnz	.Lpage_turn
	RET
SYM_FUNC_END(pagewire_fixed_4096)
