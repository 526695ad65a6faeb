/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Variant `avx512`: memcpy by 64-byte registers, a whole line a move.
 *
 * The same ladder as avx2 with half the moves. Registers 16 and up have no legacy halves, so no
 * vzeroupper is due (its 32-byte moves need AVX512VL for that).
 *
 * Source: Intel 64 and IA-32 Architectures Optimization Reference Manual, section 17 (AVX-512).
 */
#include <linux/linkage.h>
#include "rungs.h"

	.text
	.p2align 6

SYM_FUNC_START(pagewire_memcpy_avx512)
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
	cmpq	$512, %rdx
	jbe	.Lup_to_512

	/* The end, kept in eight registers until all turns are done. */
	vmovdqu64	-0x40(%rsi, %rdx), %zmm24
	vmovdqu64	-0x80(%rsi, %rdx), %zmm25
	vmovdqu64	-0xc0(%rsi, %rdx), %zmm26
	vmovdqu64	-0x100(%rsi, %rdx), %zmm27
	vmovdqu64	-0x140(%rsi, %rdx), %zmm28
	vmovdqu64	-0x180(%rsi, %rdx), %zmm29
	vmovdqu64	-0x1c0(%rsi, %rdx), %zmm30
	vmovdqu64	-0x200(%rsi, %rdx), %zmm31
	leaq	-0x200(%rdi, %rdx), %rcx
	.p2align 5
.Lturn:
	vmovdqu64	0x000(%rsi), %zmm16
	vmovdqu64	0x040(%rsi), %zmm17
	vmovdqu64	0x080(%rsi), %zmm18
	vmovdqu64	0x0c0(%rsi), %zmm19
	vmovdqu64	0x100(%rsi), %zmm20
	vmovdqu64	0x140(%rsi), %zmm21
	vmovdqu64	0x180(%rsi), %zmm22
	vmovdqu64	0x1c0(%rsi), %zmm23
	addq	$0x200, %rsi
	vmovdqu64	%zmm16, 0x000(%rdi)
	vmovdqu64	%zmm17, 0x040(%rdi)
	vmovdqu64	%zmm18, 0x080(%rdi)
	vmovdqu64	%zmm19, 0x0c0(%rdi)
	vmovdqu64	%zmm20, 0x100(%rdi)
	vmovdqu64	%zmm21, 0x140(%rdi)
	vmovdqu64	%zmm22, 0x180(%rdi)
	vmovdqu64	%zmm23, 0x1c0(%rdi)
	addq	$0x200, %rdi
	cmpq	%rcx, %rdi
	jb	.Lturn
	vmovdqu64	%zmm24, 0x1c0(%rcx)
	vmovdqu64	%zmm25, 0x180(%rcx)
	vmovdqu64	%zmm26, 0x140(%rcx)
	vmovdqu64	%zmm27, 0x100(%rcx)
	vmovdqu64	%zmm28, 0x0c0(%rcx)
	vmovdqu64	%zmm29, 0x080(%rcx)
	vmovdqu64	%zmm30, 0x040(%rcx)
	vmovdqu64	%zmm31, 0x000(%rcx)
	RET

	.p2align 4
.Lup_to_16:
	RETURN_UP_TO_16
	.p2align 4
.Lup_to_32:
	RETURN_16_TO_32
	.p2align 4
.Lup_to_64:
	COPY_BOTH_ENDS vmovdqu64, 0x20, "%ymm16", "%ymm17"
	RET
	.p2align 4
.Lup_to_128:
	COPY_BOTH_ENDS vmovdqu64, 0x40, "%zmm16", "%zmm17"
	RET
	.p2align 4
.Lup_to_256:
	COPY_BOTH_ENDS vmovdqu64, 0x40, "%zmm16, %zmm17", "%zmm18, %zmm19"
	RET
	.p2align 4
.Lup_to_512:
	COPY_BOTH_ENDS vmovdqu64, 0x40, "%zmm16, %zmm17, %zmm18, %zmm19", "%zmm20, %zmm21, %zmm22, %zmm23"
	RET
SYM_FUNC_END(pagewire_memcpy_avx512)
