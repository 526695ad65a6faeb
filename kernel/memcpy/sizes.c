// SPDX-License-Identifier: GPL-2.0
/*
 * Histogram of copy sizes by call site: the "locality of sizes" of simd-copy (section 8.2).
 *
 * The file memcpy_sizes in debugfs has a line for each call site and each power of two it copied:
 *
 *	copy_chunk_to_user+0x2a/0x40 4096 16384
 *
 * caller, smallest size of the bucket (0, 1, 2, 4, ...; here 4096 to 8191), number of copies. Write
 * on, off or reset. The parameter pagewire_memcpy_sizes begins at boot. While off, memcpy does not
 * come by here. The table is bounded; sites that find it full are counted together, as (others).
 * Copies that were resolved at compile time (constant.h) do not call memcpy and are not in it: boot
 * stock to see all.
 */
#include <linux/atomic.h>
#include <linux/debugfs.h>
#include <linux/hash.h>
#include <linux/init.h>
#include <linux/kallsyms.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include "memcpy.h"

#define SITES_SHIFT	10
#define SITES_MAX	(1 << SITES_SHIFT)
/* Greatest distance of a site from the place of its hash. */
#define PROBES_MAX	16
/* 0, 1, 2 to 3, ..., the last also for what is larger. */
#define BUCKETS		24
#define WORD_BYTES_MAX	16

struct site {
	unsigned long caller;
	unsigned long counts[BUCKETS];
};

static struct site sites[SITES_MAX];
static struct site others;

/* memcpy may be called from a signal handler that interrupts this: claims by cmpxchg, no lock. */
static struct site *site_of(unsigned long caller)
{
	unsigned int first = hash_long(caller, SITES_SHIFT);
	unsigned int i;

	for (i = 0; i < PROBES_MAX; i++) {
		struct site *site = &sites[(first + i) % SITES_MAX];
		unsigned long found = READ_ONCE(site->caller);

		if (!found)
			found = cmpxchg(&site->caller, 0, caller) ?: caller;
		if (found == caller)
			return site;
	}
	return &others;
}

void pagewire_memcpy_count(unsigned long caller, size_t len)
{
	unsigned int bucket = len ? min_t(unsigned int, ilog2(len) + 1, BUCKETS - 1) : 0;
	unsigned long *count = &site_of(caller)->counts[bucket];

	/* One instruction, so that no interruption comes between. */
	asm volatile("incq %0" : "+m" (*count));
}

static void show_site(struct seq_file *file, const struct site *site)
{
	char caller[KSYM_SYMBOL_LEN] = "(others)";
	unsigned int bucket;

	if (site != &others)
		snprintf(caller, sizeof(caller), "%pS", (void *)site->caller);
	/* One word, also with a module's name behind: copy+0x10/0x20:[module] */
	strreplace(caller, ' ', ':');
	for (bucket = 0; bucket < BUCKETS; bucket++)
		if (site->counts[bucket])
			seq_printf(file, "%s %lu %lu\n", caller,
				   bucket ? 1UL << (bucket - 1) : 0UL, site->counts[bucket]);
}

static int sizes_show(struct seq_file *file, void *unused)
{
	unsigned int i;

	for (i = 0; i < SITES_MAX; i++)
		if (sites[i].caller)
			show_site(file, &sites[i]);
	show_site(file, &others);
	return 0;
}

static int sizes_open(struct inode *inode, struct file *file)
{
	return single_open(file, sizes_show, NULL);
}

static void reset(void)
{
	unsigned int i;

	for (i = 0; i < SITES_MAX; i++)
		memset(sites[i].counts, 0, sizeof(sites[i].counts));
	memset(others.counts, 0, sizeof(others.counts));
}

static ssize_t sizes_write(struct file *file, const char __user *text, size_t len, loff_t *at)
{
	char word[WORD_BYTES_MAX] = "";

	if (len >= sizeof(word))
		return -EINVAL;
	if (copy_from_user(word, text, len))
		return -EFAULT;
	if (sysfs_streq(word, "on"))
		WRITE_ONCE(pagewire_memcpy_target, pagewire_memcpy_counted);
	else if (sysfs_streq(word, "off"))
		WRITE_ONCE(pagewire_memcpy_target, pagewire_memcpy_chosen);
	else if (sysfs_streq(word, "reset"))
		reset();
	else
		return -EINVAL;
	return len;
}

static const struct file_operations sizes_ops = {
	.owner = THIS_MODULE,
	.open = sizes_open,
	.read = seq_read,
	.llseek = seq_lseek,
	.release = single_release,
	.write = sizes_write,
};

static int __init sizes_start(char *unused)
{
	pagewire_memcpy_target = pagewire_memcpy_counted;
	return 0;
}
early_param("pagewire_memcpy_sizes", sizes_start);

static int __init sizes_init(void)
{
	debugfs_create_file("memcpy_sizes", 0600, NULL, NULL, &sizes_ops);
	return 0;
}
late_initcall(sizes_init);
