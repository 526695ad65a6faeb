// SPDX-License-Identifier: GPL-2.0
/*
 * pagewire_fpu: cost of vector registers in the kernel, and the size from which on a copy by them
 * pays.
 *
 * Outside User Mode Linux the registers hold the state of the program that was interrupted or that
 * called. kernel_fpu_begin() saves it, where that was not done since the program last ran, and
 * switches preemption off; the state is loaded again when the kernel returns to the program, once,
 * however many sections there were. So there are two costs: that of a section, paid each time, and
 * that of save and restore, paid once a crossing.
 *
 * Reading /proc/pagewire_fpu measures: sections, copies of 64 bytes to 64 KiB by memcpy() and by
 * vector registers with a section each, and where irq_fpu_usable() allows one. Reading parameter
 * `crossing` is a system call that does nothing, reading `crossing_section` one with a section in
 * it: their difference, seen by the caller, is the whole cost.
 *
 * Costs: a read takes some 200 million instructions with preemption off for up to 2 MiB of copying
 * at a time; it is an instrument, to be unloaded after use.
 *
 * Sources: Documentation/core-api/floating-point.rst; arch/x86/kernel/fpu/core.c of 6.12
 * (irq_fpu_usable, kernel_fpu_begin_mask); simd-copy, its section on FPU state.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/completion.h>
#include <linux/interrupt.h>
#include <linux/irq_work.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>

#include <asm/fpu/api.h>

#include "vector.h"

#define BYTES_MIN	64
#define BYTES_MAX	65536
#define SECTION_BYTES	1048576	/* copied between two readings of the clock */
#define ROUNDS_MIN	16
#define ROUNDS_MAX	1000
#define REPEATS		5	/* the least is taken: the others had interrupts in them */

/* Both are multiples of 64 bytes, so that no loop needs a tail. */
typedef void (*copy_fn)(void *to, const void *from, size_t bytes);

static noinline void copy_memcpy(void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
}

/**
 * struct way - a way to copy
 * @name: in the table
 * @copy: the routine
 * @section: whether each copy has a section of its own
 * @avx: needs AVX, and that the kernel keeps its state
 */
struct way {
	const char *name;
	copy_fn copy;
	bool section;
	bool avx;
};

static const struct way ways[] = {
	{ "memcpy", copy_memcpy, false, false },
	{ "sse", copy_sse, true, false },
	{ "avx", copy_avx, true, true },
};

static bool has_avx(void)
{
	return boot_cpu_has(X86_FEATURE_AVX) &&
	       cpu_has_xfeatures(XFEATURE_MASK_SSE | XFEATURE_MASK_YMM, NULL);
}

/* Nanoseconds of @rounds copies, interrupts aside. */
static u64 timed(const struct way *way, void *to, const void *from, size_t bytes, int rounds)
{
	u64 least = U64_MAX, began;
	int repeat, round;

	for (repeat = 0; repeat < REPEATS; repeat++) {
		preempt_disable();
		began = ktime_get_ns();
		for (round = 0; round < rounds; round++) {
			if (way->section)
				kernel_fpu_begin();
			way->copy(to, from, bytes);
			if (way->section)
				kernel_fpu_end();
		}
		least = min(least, ktime_get_ns() - began);
		preempt_enable();
		cond_resched();
	}
	return least;
}

static void copy_nothing(void *to, const void *from, size_t bytes)
{
}

/* Cost of a section after the first, less the empty loop, in picoseconds. */
static u64 section_ps(void)
{
	static const struct way with = { "section", copy_nothing, true, false };
	static const struct way without = { "loop", copy_nothing, false, false };

	return (timed(&with, NULL, NULL, 0, ROUNDS_MAX) -
		timed(&without, NULL, NULL, 0, ROUNDS_MAX)) * 1000 / ROUNDS_MAX;
}

/* The same in a thread of the kernel, which has no state of a program to keep. */
struct thread_job {
	struct completion done;
	u64 ps;
};

static int thread_section(void *data)
{
	struct thread_job *job = data;

	job->ps = section_ps();
	/* The caller's stack is gone after this. */
	kthread_complete_and_exit(&job->done, 0);
}

static int show_sections(struct seq_file *table)
{
	struct thread_job job = {};
	struct task_struct *thread;

	seq_printf(table, "section of=program ps=%llu\n", section_ps());
	init_completion(&job.done);
	thread = kthread_run(thread_section, &job, KBUILD_MODNAME);
	if (IS_ERR(thread))
		return PTR_ERR(thread);
	wait_for_completion(&job.done);
	seq_printf(table, "section of=kthread ps=%llu\n", job.ps);
	return 0;
}

/* Tests in each context if a section may begin. */
static struct context {
	struct irq_work work;
	struct tasklet_struct tasklet;
	struct completion done;
	bool usable;
} context;

static void ask_in_hardirq(struct irq_work *work)
{
	context.usable = irq_fpu_usable();
	complete(&context.done);
}

static void ask_in_softirq(struct tasklet_struct *tasklet)
{
	context.usable = irq_fpu_usable();
	complete(&context.done);
}

static bool usable_in_hardirq(void)
{
	reinit_completion(&context.done);
	irq_work_queue(&context.work);
	irq_work_sync(&context.work);
	wait_for_completion(&context.done);
	return context.usable;
}

static bool usable_in_softirq(void)
{
	reinit_completion(&context.done);
	tasklet_schedule(&context.tasklet);
	wait_for_completion(&context.done);
	return context.usable;
}

/* An interrupt that comes while @inside is true hits a section; else it hits softirqs held off. */
static bool usable_in_interrupted(bool inside)
{
	reinit_completion(&context.done);
	if (inside)
		kernel_fpu_begin();
	else
		local_bh_disable();
	irq_work_queue(&context.work);
	/* The interrupt is sent to this very processor and is not held off. */
	while (!completion_done(&context.done))
		cpu_relax();
	if (inside)
		kernel_fpu_end();
	else
		local_bh_enable();
	return context.usable;
}

static void show_contexts(struct seq_file *table)
{
	bool nested, preemptible_inside;

	seq_printf(table, "usable in=process answer=%d\n", irq_fpu_usable());
	seq_printf(table, "usable in=softirq answer=%d\n", usable_in_softirq());
	seq_printf(table, "usable in=hardirq answer=%d\n", usable_in_hardirq());
	kernel_fpu_begin();
	nested = irq_fpu_usable();
	preemptible_inside = preemptible();
	kernel_fpu_end();
	seq_printf(table, "usable in=section answer=%d\n", nested);
	seq_printf(table, "usable in=hardirq_over_section answer=%d\n",
		   usable_in_interrupted(true));
	seq_printf(table, "usable in=hardirq_over_bh_disabled answer=%d\n",
		   usable_in_interrupted(false));
	seq_printf(table, "preemptible in=section answer=%d\n", preemptible_inside);
}

static int show_copies(struct seq_file *table)
{
	u8 *from = kmalloc(BYTES_MAX, GFP_KERNEL), *to = kmalloc(BYTES_MAX, GFP_KERNEL);
	int error = 0, rounds, i;
	size_t bytes;
	u64 ns;

	if (!from || !to) {
		error = -ENOMEM;
		goto out;
	}
	for (i = 0; i < BYTES_MAX; i++)
		from[i] = i * 31 + (i >> 8);
	for (i = 0; i < ARRAY_SIZE(ways); i++) {
		if (ways[i].avx && !has_avx())
			continue;
		for (bytes = BYTES_MIN; bytes <= BYTES_MAX; bytes *= 2) {
			rounds = clamp_t(int, SECTION_BYTES / bytes, ROUNDS_MIN, ROUNDS_MAX);
			memset(to, 0, BYTES_MAX);
			ns = timed(&ways[i], to, from, bytes, rounds);
			if (memcmp(to, from, bytes)) {
				pr_err("%s of %zu bytes: copied wrongly\n", ways[i].name, bytes);
				error = -EIO;
				goto out;
			}
			seq_printf(table, "copy by=%s bytes=%zu ps=%llu\n", ways[i].name, bytes,
				   ns * 1000 / rounds);
		}
	}
out:
	kfree(from);
	kfree(to);
	return error;
}

static DEFINE_MUTEX(one_reader);

static int show(struct seq_file *table, void *unused)
{
	int error = mutex_lock_interruptible(&one_reader);

	if (error)
		return error;
	show_contexts(table);
	error = show_sections(table);
	if (!error)
		error = show_copies(table);
	mutex_unlock(&one_reader);
	return error;
}

static int crossing_get(char *text, const struct kernel_param *parameter)
{
	bool section = !!parameter->arg;

	if (section) {
		kernel_fpu_begin();
		kernel_fpu_end();
	}
	return sysfs_emit(text, "%d\n", section);
}

static const struct kernel_param_ops crossing_ops = { .get = crossing_get };
static bool with_section = true;

module_param_cb(crossing, &crossing_ops, NULL, 0400);
MODULE_PARM_DESC(crossing, "reading it is a system call without a section");
module_param_cb(crossing_section, &crossing_ops, &with_section, 0400);
MODULE_PARM_DESC(crossing_section, "reading it is a system call with a section");

static int __init pagewire_fpu_init(void)
{
	init_irq_work(&context.work, ask_in_hardirq);
	tasklet_setup(&context.tasklet, ask_in_softirq);
	init_completion(&context.done);
	if (!proc_create_single(KBUILD_MODNAME, 0400, NULL, show))
		return -ENOMEM;
	return 0;
}
module_init(pagewire_fpu_init);

static void __exit pagewire_fpu_exit(void)
{
	remove_proc_entry(KBUILD_MODNAME, NULL);
	tasklet_kill(&context.tasklet);
}
module_exit(pagewire_fpu_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Cost of vector registers in the kernel");
