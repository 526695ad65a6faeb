// SPDX-License-Identifier: GPL-2.0
/*
 * The variants of memcpy, and the choice at boot: pagewire_memcpy=VARIANT.
 *
 * Until the parameter is read, and without one, it is stock. A variant that the processor lacks is
 * refused by name and stock stays. The kernel of UML is a process of its host, which saves its
 * vector registers; so no variant needs kernel_fpu_begin() here. On a native kernel all but stock
 * and the string instructions would (kernel/fpu measures that).
 *
 * Does not switch while running: two variants are compared between boots.
 */
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/string.h>
#include <asm/cpufeature.h>
#include "memcpy.h"

/* The declarations of the routines, in the order of the list. */
void *pagewire_memcpy_stock(void *to, const void *from, size_t len);
void *pagewire_memcpy_movsb(void *to, const void *from, size_t len);
void *pagewire_memcpy_movsq(void *to, const void *from, size_t len);
void *pagewire_memcpy_sse_published(void *to, const void *from, size_t len);
void *pagewire_memcpy_avx2(void *to, const void *from, size_t len);
void *pagewire_memcpy_avx512(void *to, const void *from, size_t len);
void *pagewire_memcpy_sized(void *to, const void *from, size_t len);

const struct pagewire_memcpy_variant pagewire_memcpy_variants[] = {
	{ "stock", pagewire_memcpy_stock },
	{ "movsb", pagewire_memcpy_movsb },
	{ "movsq", pagewire_memcpy_movsq },
	{ "sse_published", pagewire_memcpy_sse_published, { { X86_FEATURE_XMM2, "sse2" } } },
	{ "avx2", pagewire_memcpy_avx2, { { X86_FEATURE_AVX2, "avx2" } } },
	{ "avx512", pagewire_memcpy_avx512, { { X86_FEATURE_AVX512VL, "avx512vl" } } },
	{ "sized", pagewire_memcpy_sized,
	  { { X86_FEATURE_AVX2, "avx2" }, { X86_FEATURE_ERMS, "erms" } },
	  .resolves_constants = true },
	{ }
};

pagewire_memcpy_t pagewire_memcpy_target = pagewire_memcpy_stock;
pagewire_memcpy_t pagewire_memcpy_chosen = pagewire_memcpy_stock;
bool pagewire_memcpy_constants;

const char *pagewire_memcpy_lacks(const struct pagewire_memcpy_variant *variant)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(variant->needs) && variant->needs[i].name; i++)
		if (!boot_cpu_has(variant->needs[i].feature))
			return variant->needs[i].name;
	return NULL;
}

static int __init pagewire_memcpy_choose(char *name)
{
	const struct pagewire_memcpy_variant *variant;
	const char *lack;

	for (variant = pagewire_memcpy_variants; variant->name; variant++)
		if (name && !strcmp(name, variant->name))
			break;
	if (!variant->name) {
		pr_err("%s: no such variant; using stock\n", name ?: "");
		return 0;
	}
	lack = pagewire_memcpy_lacks(variant);
	if (lack) {
		pr_err("%s: this processor lacks %s; using stock\n", name, lack);
		return 0;
	}
	if (pagewire_memcpy_target == pagewire_memcpy_chosen)
		pagewire_memcpy_target = variant->copy;
	pagewire_memcpy_chosen = variant->copy;
	pagewire_memcpy_constants = variant->resolves_constants;
	pr_info("using %s\n", variant->name);
	return 0;
}
early_param("pagewire_memcpy", pagewire_memcpy_choose);
