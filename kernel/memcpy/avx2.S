/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Variant `avx2`: memcpy by 32-byte registers, one ladder for all sizes.
 *
 * Up to 256 bytes a rung of overlapping moves; above, 256 bytes a turn and the last 256 bytes,
 * which overlap the last turn: no rest, so no size is slower than the next larger one.
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

	COPY_BY_TURNS vmovdqu, 0x20, "%ymm0, %ymm1, %ymm2, %ymm3, %ymm4, %ymm5, %ymm6, %ymm7"
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
