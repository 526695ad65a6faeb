// SPDX-License-Identifier: GPL-2.0
/*
 * Self-test and speed of every variant that the processor has, at boot.
 *
 * pagewire_memcpy_test: each variant copies every size from 0 to 576, and sizes around pages,
 * packets and turns of the loops, between many offsets of source and target; a plain loop looks
 * at every byte, the neighbours' too. Sources and targets also begin at the first and end at the
 * last byte of a vmalloc area, where a read or write too far faults. One line each:
 *
 *	pagewire_memcpy: avx2 cases=62712 bad=0
 *
 * `constant` is the copies of constant.h: every size that they resolve. A variant with bad copies
 * that is in use is replaced by stock, with an error line.
 *
 * pagewire_memcpy_speed: a table of MB/s and ps a copy by size, for each variant.
 */
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/string.h>
#include <linux/timekeeping.h>
#include <linux/vmalloc.h>
#include <asm/cpufeature.h>
#include "memcpy.h"

/* Every size up to here: past the widest ladder (512) and one line more. */
#define EACH_SIZE_MAX		576
#define NEIGHBOUR_BYTES		128
#define AREA_BYTES		(128 << 10)
#define CANARY			0xa5
#define SPEED_AREA_BYTES	(8 << 20)
#define SPEED_BYTES		(64 << 20)
#define SPEED_COPIES_MAX	(1 << 20)
#define SPEED_TRIES		3

static const size_t large_sizes[] __initconst = {
	577, 640, 767, 768, 769, 895, 1023, 1024, 1025, 1316, 1400, 1500, 1536, 2047, 2048, 2049,
	4064, 4095, 4096, 4097, 8192, 9000, 16384 + 1, 65535, 65536, 65537,
};
static const unsigned int offsets[] __initconst = { 0, 1, 3, 7, 8, 15, 16, 31, 33, 63 };
static const size_t speed_sizes[] __initconst = {
	8, 16, 64, 128, 256, 512, 1024, 1400, 4096, 65536, 1 << 20, 8 << 20,
};

static u8 *source_area __initdata;
static u8 *target_area __initdata;
static bool want_test __initdata;
static bool want_speed __initdata;

struct tally {
	unsigned long cases;
	unsigned long bad;
};

/* Byte at an offset of the source: no two lines alike, and never the canary. */
static u8 __init pattern(size_t at)
{
	u8 value = (at * 167 + (at >> 8) * 59) >> 1;

	return value == CANARY ? 0x5a : value;
}

/* True when the target has the copy, and the bytes around it are unchanged. */
static bool __init is_right(const u8 *target, const u8 *source, size_t len)
{
	size_t before = min_t(size_t, NEIGHBOUR_BYTES, target - target_area);
	size_t after = min_t(size_t, NEIGHBOUR_BYTES, target_area + AREA_BYTES - target - len);
	size_t i;

	for (i = 1; i <= before; i++)
		if (*(target - i) != CANARY)
			return false;
	for (i = 0; i < len; i++)
		if (target[i] != pattern(source - source_area + i))
			return false;
	for (i = 0; i < after; i++)
		if (target[len + i] != CANARY)
			return false;
	return true;
}

static void __init try_copy(pagewire_memcpy_t copy, u8 *target, const u8 *source, size_t len,
			    struct tally *tally)
{
	size_t before = min_t(size_t, NEIGHBOUR_BYTES, target - target_area);
	size_t after = min_t(size_t, NEIGHBOUR_BYTES, target_area + AREA_BYTES - target - len);

	memset(target - before, CANARY, before + len + after);
	tally->cases++;
	if (copy(target, source, len) != target || !is_right(target, source, len))
		tally->bad++;
}

/* One size at all offsets, and at both ends of the areas. */
static void __init try_size(pagewire_memcpy_t copy, size_t len, struct tally *tally)
{
	u8 *target_last = target_area + AREA_BYTES - len;
	u8 *source_last = source_area + AREA_BYTES - len;
	unsigned int s, t;

	for (s = 0; s < ARRAY_SIZE(offsets); s++)
		for (t = 0; t < ARRAY_SIZE(offsets); t++)
			try_copy(copy, target_area + NEIGHBOUR_BYTES + offsets[t],
				 source_area + NEIGHBOUR_BYTES + offsets[s], len, tally);
	try_copy(copy, target_area, source_area, len, tally);
	try_copy(copy, target_area, source_last, len, tally);
	try_copy(copy, target_last, source_area, len, tally);
	try_copy(copy, target_last, source_last, len, tally);
}

static struct tally __init test_variant(pagewire_memcpy_t copy)
{
	struct tally tally = { };
	size_t i;

	for (i = 0; i <= EACH_SIZE_MAX; i++)
		try_size(copy, i, &tally);
	for (i = 0; i < ARRAY_SIZE(large_sizes); i++)
		try_size(copy, large_sizes[i], &tally);
	return tally;
}

/* A case for each constant: the compiler must see it as one. */
#define CASE_1(n)	case (n): return pagewire_memcpy_fixed(to, from, (n));
#define CASE_4(n)	CASE_1(n) CASE_1((n) + 1) CASE_1((n) + 2) CASE_1((n) + 3)
#define CASE_16(n)	CASE_4(n) CASE_4((n) + 4) CASE_4((n) + 8) CASE_4((n) + 12)
#define CASE_64(n)	CASE_16(n) CASE_16((n) + 16) CASE_16((n) + 32) CASE_16((n) + 48)

static void *__init copy_constant(void *to, const void *from, size_t len)
{
	switch (len) {
	CASE_64(0)
	CASE_64(64)
	CASE_64(128)
	CASE_64(192)
	CASE_64(256)
	CASE_64(320)
	CASE_64(384)
	CASE_64(448)
	CASE_1(512)
	CASE_1(4096)
	}
	return NULL;
}

static struct tally __init test_constant(void)
{
	struct tally tally = { };
	size_t i;

	for (i = 0; i <= 512; i++)
		try_size(copy_constant, i, &tally);
	try_size(copy_constant, 4096, &tally);
	return tally;
}

static int __init run_test(void)
{
	const struct pagewire_memcpy_variant *variant;
	struct tally tally;
	size_t i;

	source_area = vmalloc(AREA_BYTES);
	target_area = vmalloc(AREA_BYTES);
	if (!source_area || !target_area) {
		vfree(source_area);
		vfree(target_area);
		return -ENOMEM;
	}
	for (i = 0; i < AREA_BYTES; i++)
		source_area[i] = pattern(i);
	for (variant = pagewire_memcpy_variants; variant->name; variant++) {
		const char *lack = pagewire_memcpy_lacks(variant);

		if (lack) {
			pr_info("%s skipped: this processor lacks %s\n", variant->name, lack);
			continue;
		}
		tally = test_variant(variant->copy);
		pr_info("%s cases=%lu bad=%lu\n", variant->name, tally.cases, tally.bad);
		if (variant->resolves_constants) {
			struct tally constant = test_constant();

			pr_info("constant cases=%lu bad=%lu\n", constant.cases, constant.bad);
			tally.bad += constant.bad;
		}
		if (tally.bad && pagewire_memcpy_chosen == variant->copy) {
			pr_err("%s copies wrongly; using stock\n", variant->name);
			if (pagewire_memcpy_target == pagewire_memcpy_chosen)
				pagewire_memcpy_target = pagewire_memcpy_variants[0].copy;
			pagewire_memcpy_chosen = pagewire_memcpy_variants[0].copy;
			pagewire_memcpy_constants = false;
		}
	}
	vfree(source_area);
	vfree(target_area);
	return 0;
}

static u64 __init best_ns(pagewire_memcpy_t copy, u8 *to, const u8 *from, size_t len, u64 copies)
{
	u64 best = U64_MAX;
	unsigned int try;
	u64 i;

	for (try = 0; try < SPEED_TRIES; try++) {
		u64 start = ktime_get_ns();

		for (i = 0; i < copies; i++)
			copy(to, from, len);
		best = min(best, ktime_get_ns() - start);
	}
	return max(best, 1ULL);
}

static int __init run_speed(void)
{
	const struct pagewire_memcpy_variant *variant;
	u8 *from = vmalloc(SPEED_AREA_BYTES);
	u8 *to = vmalloc(SPEED_AREA_BYTES);
	size_t i;

	if (!from || !to) {
		vfree(from);
		vfree(to);
		return -ENOMEM;
	}
	memset(from, 1, SPEED_AREA_BYTES);
	memset(to, 2, SPEED_AREA_BYTES);
	for (i = 0; i < ARRAY_SIZE(speed_sizes); i++) {
		size_t len = speed_sizes[i];
		u64 copies = min_t(u64, SPEED_BYTES / len, SPEED_COPIES_MAX);

		for (variant = pagewire_memcpy_variants; variant->name; variant++) {
			u64 ns;

			if (pagewire_memcpy_lacks(variant))
				continue;
			ns = best_ns(variant->copy, to, from, len, copies);
			pr_info("speed %s bytes=%zu mb_per_s=%llu ps_per_copy=%llu\n",
				variant->name, len, len * copies * 1000 / ns, ns * 1000 / copies);
		}
	}
	vfree(from);
	vfree(to);
	return 0;
}

static int __init ask_test(char *unused)
{
	want_test = true;
	return 0;
}
early_param("pagewire_memcpy_test", ask_test);

static int __init ask_speed(char *unused)
{
	want_speed = true;
	return 0;
}
early_param("pagewire_memcpy_speed", ask_speed);

static int __init selftest_init(void)
{
	int status = 0;

	if (want_test)
		status = run_test();
	if (!status && want_speed)
		status = run_speed();
	if (status)
		pr_err("self-test: no memory\n");
	return status;
}
late_initcall(selftest_init);
