/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Variants `movsb` and `movsq`: memcpy by string instructions.
 *
 * What a native kernel runs on processors with fast strings (FSRM, ERMS; alternatives pick it),
 * and what stock UML never does, because it does not patch alternatives. The processor moves whole
 * lines and reads ahead by itself, but takes 20 to 40 cycles to start; movsq pays that twice when
 * the size is no multiple of eight.
 *
 * Sources: Intel 64 and IA-32 Architectures Optimization Reference Manual, section 3.7.6 (string
 * instructions); AMD64 Architecture Programmer's Manual, volume 3, MOVS.
 */
#include <linux/linkage.h>

	.text

SYM_FUNC_START(pagewire_memcpy_movsb)
	movq	%rdi, %rax
	movq	%rdx, %rcx
	rep movsb
	RET
SYM_FUNC_END(pagewire_memcpy_movsb)

SYM_FUNC_START(pagewire_memcpy_movsq)
	movq	%rdi, %rax
	movq	%rdx, %rcx
	shrq	$3, %rcx
	rep movsq
	andl	$7, %edx
	jz	.Lwhole
	movl	%edx, %ecx
	rep movsb
.Lwhole:
	RET
SYM_FUNC_END(pagewire_memcpy_movsq)
