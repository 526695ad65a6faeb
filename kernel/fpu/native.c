// SPDX-License-Identifier: GPL-2.0
/*
 * native: by time, on the processor it runs on, what pagewire_fpu counts in instructions.
 *
 * Most of what a section costs a program is the saving of its registers and the loading of them
 * again, and the instructions for that may be used by any program: XSAVEC and XRSTOR, where the
 * kernel has XSAVES and XRSTORS, which differ in privileged state that is not in use. So the cost
 * can be timed without a module: that of the pair, with the registers in use that a program of SSE,
 * AVX or AVX-512 has in use; and that of copies by the kernel's two routines (8 bytes an
 * instruction, or rep movsb where the processor has fast short ones) and by vector registers.
 * Source and target stay in the cache, which is the best case for vectors.
 *
 * Prints lines as the guest does: pair state=S ps=N, copy by=W bytes=N ps=N; ps are picoseconds.
 *
 * Does not measure preemption that is held off, or frequencies that fall by wide vectors.
 * Sources: Intel SDM volume 1, chapter 13 (XSAVE); arch/x86/lib/memcpy_64.S of 6.12.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "vector.h"

#define BYTES_MIN	64
#define BYTES_MAX	65536
#define AREA_BYTES	16384	/* of XSAVE, all states of today's processors */
/* Short sections, many of them, of which the least is taken: the others were interrupted. */
#define REPEATS		200
#define SECTION_BYTES	(1 << 20)
#define ROUNDS_MIN	16
#define ROUNDS_MAX	2000

#define OSXSAVE		(1u << 27)	/* CPUID.1:ECX */
#define AVX		(1u << 28)
#define AVX512F		(1u << 16)	/* CPUID.7:EBX */
#define XSAVEC		(1u << 1)	/* CPUID.0DH.1:EAX */
#define XCR0_YMM	0x6ull
#define XCR0_ZMM	0xe6ull

static uint8_t area[AREA_BYTES] __attribute__((aligned(64)));

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static uint64_t xcr0(void)
{
	uint32_t low, high;

	asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return (uint64_t)high << 32 | low;
}

/* An area of XSAVE in which no state is in use; MXCSR is loaded even so. */
static const struct {
	uint8_t legacy[24];
	uint32_t mxcsr;
	uint8_t rest[AREA_BYTES - 28];
} unused __attribute__((aligned(64))) = { .mxcsr = 0x1f80 };

/* Earlier code may have left wide registers in use, which a processor then saves each time. */
static void use_nothing(void)
{
	asm volatile("xrstor64 %0" : : "m"(unused), "a"(~0u), "d"(~0u) : "memory");
}

static void use_sse(void)
{
	asm volatile("pcmpeqd %%xmm0, %%xmm0" ::: "xmm0");
}

static void use_avx(void)
{
	asm volatile("vcmptrueps %%ymm0, %%ymm0, %%ymm0" ::: "xmm0");
}

static void use_avx512(void)
{
	asm volatile("vpternlogd $255, %%zmm16, %%zmm16, %%zmm16" ::: "memory");
}

/* Saves and loads what is in use, as the first section after a program ran and its end do. */
static void save_and_load(int rounds)
{
	while (rounds--)
		asm volatile("xsavec64 %0\n"
			     "xrstor64 %0"
			     : "+m"(area)
			     : "a"(~0u), "d"(~0u)
			     : "memory");
}

static void show_pair(const char *state, void (*use)(void))
{
	uint64_t least = UINT64_MAX, began, took;

	for (int repeat = 0; repeat < REPEATS; repeat++) {
		began = now_ns();
		use_nothing();
		use();
		save_and_load(ROUNDS_MAX);
		took = now_ns() - began;
		if (took < least)
			least = took;
	}
	printf("pair state=%s ps=%llu\n", state, (unsigned long long)least * 1000 / ROUNDS_MAX);
}

static void copy_movq(void *to, const void *from, size_t bytes)
{
	asm volatile("1:	movq	(%1), %%r8\n"
		     "	movq	8(%1), %%r9\n"
		     "	movq	16(%1), %%r10\n"
		     "	movq	24(%1), %%r11\n"
		     "	movq	%%r8, (%0)\n"
		     "	movq	%%r9, 8(%0)\n"
		     "	movq	%%r10, 16(%0)\n"
		     "	movq	%%r11, 24(%0)\n"
		     "	lea	32(%1), %1\n"
		     "	lea	32(%0), %0\n"
		     "	sub	$32, %2\n"
		     "	jnz	1b\n"
		     : "+r"(to), "+r"(from), "+r"(bytes)
		     :
		     : "r8", "r9", "r10", "r11", "memory", "cc");
}

static void copy_movsb(void *to, const void *from, size_t bytes)
{
	asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

static const struct way {
	const char *name;
	void (*copy)(void *to, const void *from, size_t bytes);
} ways[] = {
	{ "movq", copy_movq }, { "movsb", copy_movsb }, { "sse", copy_sse }, { "avx", copy_avx },
};

static void show_copies(uint8_t *to, uint8_t *from)
{
	for (size_t i = 0; i < BYTES_MAX; i++)
		from[i] = i * 31 + (i >> 8);
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		for (size_t bytes = BYTES_MIN; bytes <= BYTES_MAX; bytes *= 2) {
			uint64_t least = UINT64_MAX, began, took;
			int rounds = SECTION_BYTES / bytes;

			rounds = rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
			rounds = rounds < ROUNDS_MIN ? ROUNDS_MIN : rounds;
			memset(to, 0, BYTES_MAX);
			for (int repeat = 0; repeat < REPEATS; repeat++) {
				began = now_ns();
				for (int round = 0; round < rounds; round++)
					ways[i].copy(to, from, bytes);
				took = now_ns() - began;
				if (took < least)
					least = took;
			}
			if (memcmp(to, from, bytes)) {
				fprintf(stderr, "%s of %zu bytes: copied wrongly\n",
					ways[i].name, bytes);
				exit(1);
			}
			printf("copy by=%s bytes=%zu ps=%llu\n", ways[i].name, bytes,
			       (unsigned long long)least * 1000 / rounds);
		}
	}
}

int main(void)
{
	uint8_t *to = aligned_alloc(4096, BYTES_MAX), *from = aligned_alloc(4096, BYTES_MAX);
	unsigned int a = 0, b = 0, c = 0, d = 0, b7 = 0;
	bool avx;

	if (!to || !from)
		return 1;
	__get_cpuid(1, &a, &b, &c, &d);
	avx = (c & (OSXSAVE | AVX)) == (OSXSAVE | AVX) && (xcr0() & XCR0_YMM) == XCR0_YMM;
	__get_cpuid_count(7, 0, &a, &b7, &c, &d);
	if (!avx || !__get_cpuid_count(0xd, 0, &a, &b, &c, &d) || c > AREA_BYTES ||
	    !__get_cpuid_count(0xd, 1, &a, &b, &c, &d) || !(a & XSAVEC)) {
		printf("skip: this processor has no AVX or no XSAVEC\n");
		return 0;
	}
	show_pair("sse", use_sse);
	show_pair("avx", use_avx);
	if ((b7 & AVX512F) && (xcr0() & XCR0_ZMM) == XCR0_ZMM)
		show_pair("avx512", use_avx512);
	show_copies(to, from);
	return 0;
}
