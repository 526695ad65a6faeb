/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Variant `avx2`: memcpy by 32-byte registers, one ladder for all sizes.
 *
 * Up to 256 bytes a rung of overlapping moves; above, 256 bytes a turn and the last 256 bytes,
 * which overlap the last turn, loaded beforehand: no rest, so no size is slower than the next
 * larger one.
 *
 * Source: Intel 64 and IA-32 Architectures Optimization Reference Manual, section 15.16 (mixing
 * VEX and legacy SSE: vzeroupper before the return).
 */
#include <linux/linkage.h>
#include "rungs.h"

	.text
	.p2align 6

SYM_FUNC_START(pagewire_memcpy_avx2)
	movq	%rdi, %rax
	cmpq	$16, %rdx
	jbe	.Lup_to_16
	cmpq	$32, %rdx
	jbe	.Lup_to_32
	cmpq	$64, %rdx
	jbe	.Lup_to_64
	cmpq	$128, %rdx
	jbe	.Lup_to_128
	cmpq	$256, %rdx
	jbe	.Lup_to_256

	/* The end, kept in eight registers until all turns are done. */
	vmovdqu	-0x20(%rsi, %rdx), %ymm8
	vmovdqu	-0x40(%rsi, %rdx), %ymm9
	vmovdqu	-0x60(%rsi, %rdx), %ymm10
	vmovdqu	-0x80(%rsi, %rdx), %ymm11
	vmovdqu	-0xa0(%rsi, %rdx), %ymm12
	vmovdqu	-0xc0(%rsi, %rdx), %ymm13
	vmovdqu	-0xe0(%rsi, %rdx), %ymm14
	vmovdqu	-0x100(%rsi, %rdx), %ymm15
	leaq	-0x100(%rdi, %rdx), %rcx
	.p2align 5
.Lturn:
	vmovdqu	0x00(%rsi), %ymm0
	vmovdqu	0x20(%rsi), %ymm1
	vmovdqu	0x40(%rsi), %ymm2
	vmovdqu	0x60(%rsi), %ymm3
	vmovdqu	0x80(%rsi), %ymm4
	vmovdqu	0xa0(%rsi), %ymm5
	vmovdqu	0xc0(%rsi), %ymm6
	vmovdqu	0xe0(%rsi), %ymm7
	addq	$0x100, %rsi
	vmovdqu	%ymm0, 0x00(%rdi)
	vmovdqu	%ymm1, 0x20(%rdi)
	vmovdqu	%ymm2, 0x40(%rdi)
	vmovdqu	%ymm3, 0x60(%rdi)
	vmovdqu	%ymm4, 0x80(%rdi)
	vmovdqu	%ymm5, 0xa0(%rdi)
	vmovdqu	%ymm6, 0xc0(%rdi)
	vmovdqu	%ymm7, 0xe0(%rdi)
	addq	$0x100, %rdi
	cmpq	%rcx, %rdi
	jb	.Lturn
	vmovdqu	%ymm8, 0xe0(%rcx)
	vmovdqu	%ymm9, 0xc0(%rcx)
	vmovdqu	%ymm10, 0xa0(%rcx)
	vmovdqu	%ymm11, 0x80(%rcx)
	vmovdqu	%ymm12, 0x60(%rcx)
	vmovdqu	%ymm13, 0x40(%rcx)
	vmovdqu	%ymm14, 0x20(%rcx)
	vmovdqu	%ymm15, 0x00(%rcx)
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
.Lup_to_128:
	COPY_BOTH_ENDS vmovdqu, 0x20, "%ymm0, %ymm1", "%ymm2, %ymm3"
	vzeroupper
	RET
	.p2align 4
.Lup_to_256:
	COPY_BOTH_ENDS vmovdqu, 0x20, "%ymm0, %ymm1, %ymm2, %ymm3", "%ymm4, %ymm5, %ymm6, %ymm7"
	vzeroupper
	RET
SYM_FUNC_END(pagewire_memcpy_avx2)
