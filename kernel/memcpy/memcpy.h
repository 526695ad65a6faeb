/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Shared declarations of kernel/memcpy: the list of variants and the choice.
 */
#ifndef _PAGEWIRE_MEMCPY_H
#define _PAGEWIRE_MEMCPY_H

#include <linux/printk.h>
#include <linux/types.h>

#undef pr_fmt
#define pr_fmt(text) "pagewire_memcpy: " text

#define PAGEWIRE_NEEDS_MAX	2

typedef void *(*pagewire_memcpy_t)(void *to, const void *from, size_t len);

/**
 * struct pagewire_memcpy_need - something a processor may lack
 * @feature: X86_FEATURE_*
 * @name: as /proc/cpuinfo calls it; none: no need
 */
struct pagewire_memcpy_need {
	int feature;
	const char *name;
};

/**
 * struct pagewire_memcpy_variant - one way to copy
 * @name: as in the parameter pagewire_memcpy=
 * @copy: the routine
 * @needs: what it runs on
 * @resolves_constants: whether constant.h's copies go with it
 */
struct pagewire_memcpy_variant {
	const char *name;
	pagewire_memcpy_t copy;
	struct pagewire_memcpy_need needs[PAGEWIRE_NEEDS_MAX];
	bool resolves_constants;
};

/* Ends with a variant without a name; the first is stock. */
extern const struct pagewire_memcpy_variant pagewire_memcpy_variants[];

/* Name of a feature that the variant needs and the processor lacks; NULL: none. */
const char *pagewire_memcpy_lacks(const struct pagewire_memcpy_variant *variant);

/* Target of memcpy's jump; and its target without the histogram. Used in entry.S. */
extern pagewire_memcpy_t pagewire_memcpy_target;
extern pagewire_memcpy_t pagewire_memcpy_chosen;
/* True when constant.h's copies are used. */
extern bool pagewire_memcpy_constants;

void *pagewire_memcpy_counted(void *to, const void *from, size_t len);
void pagewire_memcpy_count(unsigned long caller, size_t len);

#endif /* _PAGEWIRE_MEMCPY_H */
