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

	COPY_BY_TURNS vmovdqu64, 0x40, \
		"%zmm16, %zmm17, %zmm18, %zmm19, %zmm20, %zmm21, %zmm22, %zmm23"
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
