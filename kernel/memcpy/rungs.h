/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The rungs of the vector variants, and the loop above them.
 *
 * A rung is for sizes for which no loop is needed. It loads all before it stores anything, from
 * both ends towards the middle, so it serves every size between its half and its whole; the two
 * ends overlap.
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

/*
 * Copies %rdx bytes, at least as many as the registers hold, that many a turn; the last turn
 * overlaps the one before. Uses %rsi, %rdi, %rcx, %r8. With \ahead, asks for the line that many
 * bytes further, one a turn: from there the processor goes on by itself.
 *
 * Strictly upwards: where an end is loaded first, the processor does not see a stream begin. Pages
 * from the last cache took 10 % longer then by 32-byte registers, up to half longer by 64-byte ones
 * (AMD Zen 4).
 */
.macro COPY_BY_TURNS move:req, width:req, registers:req, ahead=0
	.set	.Lturn, 0
	.irp	register, \registers
	.set	.Lturn, .Lturn + \width
	.endr
	leaq	-.Lturn(%rsi, %rdx), %r8
	leaq	-.Lturn(%rdi, %rdx), %rcx
	.p2align 5
.Lagain_\@:
	.if	\ahead
	prefetcht1	\ahead(%rsi)
	.endif
	COPY_TURN \move, \width, %rsi, %rdi, "\registers"
	addq	$.Lturn, %rsi
	addq	$.Lturn, %rdi
	cmpq	%rcx, %rdi
	jb	.Lagain_\@
	COPY_TURN \move, \width, %r8, %rcx, "\registers"
.endm

.macro COPY_TURN move:req, width:req, from:req, to:req, registers:req
	.set	.Lat, 0
	.irp	register, \registers
	\move	.Lat(\from), \register
	.set	.Lat, .Lat + \width
	.endr
	.set	.Lat, 0
	.irp	register, \registers
	\move	\register, .Lat(\to)
	.set	.Lat, .Lat + \width
	.endr
.endm
