/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Copies by vector registers, the same for the module and for the program beside it.
 *
 * @bytes is a multiple of 64, so that no loop needs a tail.
 */

/* The kernel's compiler uses no vector registers and has none to spare. */
#ifdef __SSE__
#define VECTORS "xmm0", "xmm1", "xmm2", "xmm3",
#else
#define VECTORS
#endif

static __attribute__((__noinline__)) void copy_sse(void *to, const void *from, size_t bytes)
{
	asm volatile("1:	movups	(%1), %%xmm0\n"
		     "	movups	16(%1), %%xmm1\n"
		     "	movups	32(%1), %%xmm2\n"
		     "	movups	48(%1), %%xmm3\n"
		     "	movups	%%xmm0, (%0)\n"
		     "	movups	%%xmm1, 16(%0)\n"
		     "	movups	%%xmm2, 32(%0)\n"
		     "	movups	%%xmm3, 48(%0)\n"
		     "	add	$64, %1\n"
		     "	add	$64, %0\n"
		     "	sub	$64, %2\n"
		     "	jnz	1b\n"
		     : "+r"(to), "+r"(from), "+r"(bytes)
		     :
		     : VECTORS "memory", "cc");
}

static __attribute__((__noinline__)) void copy_avx(void *to, const void *from, size_t bytes)
{
	asm volatile("1:	vmovdqu	(%1), %%ymm0\n"
		     "	vmovdqu	32(%1), %%ymm1\n"
		     "	vmovdqu	%%ymm0, (%0)\n"
		     "	vmovdqu	%%ymm1, 32(%0)\n"
		     "	add	$64, %1\n"
		     "	add	$64, %0\n"
		     "	sub	$64, %2\n"
		     "	jnz	1b\n"
		     "	vzeroupper\n"
		     : "+r"(to), "+r"(from), "+r"(bytes)
		     :
		     : VECTORS "memory", "cc");
}
