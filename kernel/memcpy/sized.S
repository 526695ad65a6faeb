/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Variant `sized`: memcpy fitted to the sizes that User Mode Linux copies.
 *
 * The two proposals of simd-copy (section 8). Its first, a routine without branches for each
 * constant size, is constant.h, which resolves sizes at compile time and enters at
 * pagewire_fixed_*: the same code, behind the branches that a known size answers. Its second, the
 * loop's width fitted to the sizes seen: the histogram (sizes.c) shows two heaps, fields of up to
 * 64 bytes and whole pages (copies from and to user memory go page by page). So the ladder asks for
 * these two first. Up to 2 KiB its loop is as narrow as saturates the stores, 128 bytes a turn, so
 * that little is left over: what is small is in the first cache.
 *
 * Pages seldom are, and they come in a row. A processor does not read ahead over the end of a page,
 * so each of them would begin with misses: from 2 KiB on, each turn asks for its first line in the
 * next page as well, and from there the processor goes on by itself. What is read from the last
 * cache or from memory takes 4 to 9 % less time by that, what is in the second cache 1 to 2 % more.
 * Tried and slower: asking for all of the next page, for the target's, into the first cache; four
 * streams of 1 KiB; 16-byte moves. rep movsb owns the lines of its target without reading them
 * first: ahead by 2 to 4 % where all of the target is in memory, behind elsewhere.
 * Measured on AMD Zen 4.
 *
 * Sources: Saito, Oikawa, "Utilization of a SIMD unit in the OS Kernel", section 8; Intel 64 and
 * IA-32 Architectures Optimization Reference Manual, sections 3.7.6 (rep movsb) and 15.16
 * (vzeroupper).
 */
#include <linux/linkage.h>
#include "rungs.h"

#define PAGE_BYTES	4096
/* From here on what is copied counts as not cached near. */
#define FAR_BYTES	2048

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
	cmpq	$FAR_BYTES, %rdx
	jae	.Lfar
	COPY_BY_TURNS vmovdqu, 0x20, "%ymm0, %ymm1, %ymm2, %ymm3"
	vzeroupper
	RET

	.p2align 4
.Lfar:
	COPY_BY_TURNS vmovdqu, 0x20, "%ymm0, %ymm1, %ymm2, %ymm3, %ymm4, %ymm5, %ymm6, %ymm7", \
		ahead=PAGE_BYTES
	vzeroupper
	RET

	.p2align 4
.Lup_to_16:
	RETURN_UP_TO_16
	.p2align 4
.Lup_to_32:
	RETURN_16_TO_32
	.p2align 4
.Lup_to_64:
	COPY_BOTH_ENDS vmovdqu, 0x20, "%ymm0", "%ymm1"
	vzeroupper
	RET

	.p2align 4
SYM_INNER_LABEL(pagewire_fixed_128, SYM_L_GLOBAL)	/* 64 to 128 bytes */
	movq	%rdi, %rax
.Lup_to_128:
	COPY_BOTH_ENDS vmovdqu, 0x20, "%ymm0, %ymm1", "%ymm2, %ymm3"
	vzeroupper
	RET

	.p2align 4
SYM_INNER_LABEL(pagewire_fixed_256, SYM_L_GLOBAL)	/* 128 to 256 bytes */
	movq	%rdi, %rax
.Lup_to_256:
	COPY_BOTH_ENDS vmovdqu, 0x20, "%ymm0, %ymm1, %ymm2, %ymm3", "%ymm4, %ymm5, %ymm6, %ymm7"
	vzeroupper
	RET
SYM_FUNC_END(pagewire_memcpy_sized)

/* 256 to 512 bytes: memcpy_512 of simd-copy, for sizes below it too. */
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
	movl	$PAGE_BYTES, %ecx
	rep movsb
	RET
SYM_FUNC_END(pagewire_fixed_4096)
