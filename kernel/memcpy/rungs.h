/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The rungs of the vector variants: sizes for which no loop is needed.
 *
 * Each rung loads all before it stores anything, from both ends towards the middle, so one rung
 * serves every size between its half and its whole; the two ends overlap.
 */

/* Copies %rdx bytes, at most 16, from %rsi to %rdi and returns. Uses %rcx, %r8, %xmm0. */
.macro RETURN_UP_TO_16
	cmpl	$8, %edx
	jb	.Lbelow8_\@
	movq	(%rsi), %rcx
	movq	-8(%rsi, %rdx), %r8
	movq	%rcx, (%rdi)
	movq	%r8, -8(%rdi, %rdx)
	RET
	.p2align 4
.Lbelow8_\@:
	cmpl	$4, %edx
	jb	.Lbelow4_\@
	movl	(%rsi), %ecx
	movl	-4(%rsi, %rdx), %r8d
	movl	%ecx, (%rdi)
	movl	%r8d, -4(%rdi, %rdx)
	RET
.Lbelow4_\@:
	testl	%edx, %edx
	jz	.Lnone_\@
	movzbl	(%rsi), %ecx
	movzbl	-1(%rsi, %rdx), %r8d
	cmpl	$3, %edx
	jne	.Lends_\@
	movzbl	1(%rsi), %r9d
	movb	%r9b, 1(%rdi)
.Lends_\@:
	movb	%cl, (%rdi)
	movb	%r8b, -1(%rdi, %rdx)
.Lnone_\@:
	RET
.endm

/* Copies %rdx bytes, 16 to 32, and returns. */
.macro RETURN_16_TO_32
	movups	(%rsi), %xmm0
	movups	-16(%rsi, %rdx), %xmm1
	movups	%xmm0, (%rdi)
	movups	%xmm1, -16(%rdi, %rdx)
	RET
.endm

/*
 * Copies %rdx bytes, from those of the registers in \first to twice as many: \first takes them
 * from the start, \last, which are as many, from the end. Each register holds \width bytes.
 */
.macro COPY_BOTH_ENDS move:req, width:req, first:req, last:req
	.set	.Lat, 0
	.irp	register, \first
	\move	.Lat(%rsi), \register
	.set	.Lat, .Lat + \width
	.endr
	.set	.Lat, -.Lat
	.irp	register, \last
	\move	.Lat(%rsi, %rdx), \register
	.set	.Lat, .Lat + \width
	.endr
	.irp	register, \first
	\move	\register, .Lat(%rdi)
	.set	.Lat, .Lat + \width
	.endr
	.set	.Lat, -.Lat
	.irp	register, \last
	\move	\register, .Lat(%rdi, %rdx)
	.set	.Lat, .Lat + \width
	.endr
.endm
