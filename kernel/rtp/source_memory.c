// SPDX-License-Identifier: GPL-2.0
/*
 * Payload from the caller's memory, by page reference: pin_user_pages_fast().
 *
 * Meant for memory that a file is mapped to, where the pages are those of the page cache; any
 * memory that the caller may read will do, as with MSG_ZEROCOPY and vmsplice(2). There is no
 * notice of when a packet left: what the caller writes to pages meanwhile goes out with the
 * packet, so memory that is sent must not be written to until the receiver can have it.
 *
 * References: a batch of pages is pinned only while it is fed. What stays behind in an sk_buff
 * is a plain reference that the stack took itself (MSG_SPLICE_PAGES, sendpage), and a packet
 * begun has one of the run's (pwr_run_hold()); unpinning takes away neither. Plain references are
 * enough for that part since nobody writes to these pages: a page freed, unmapped, truncated or
 * copied on write meanwhile stays what it was until the last packet with it has gone. It is no
 * pin for long: FOLL_LONGTERM would move pages of the page cache for nothing.
 *
 * Cost: a look-up of page tables for 16 pages at a time, two atomic operations for each page; for
 * each packet a third of that.
 *
 * Sources: Documentation/core-api/pin_user_pages.rst, mm/gup.c.
 */
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>

#include "engine.h"

#define PWR_PINS_MAX	16

/* Feeds one batch of pages; returns the bytes fed, 0 when it stopped with run->error. */
static unsigned int pwr_memory_round(struct pwr_run *run, unsigned long address, u64 bytes)
{
	unsigned int offset = offset_in_page(address);
	struct page *pages[PWR_PINS_MAX];
	unsigned int fed = 0;
	int wanted, pinned, index;

	bytes = min_t(u64, bytes, PWR_PINS_MAX * PAGE_SIZE - offset);
	wanted = DIV_ROUND_UP(offset + (unsigned int)bytes, PAGE_SIZE);
	pinned = pin_user_pages_fast(address - offset, wanted, 0, pages);
	if (pinned <= 0) {
		run->error = pinned ? pinned : -EFAULT;
		return 0;
	}
	for (index = 0; index < pinned && !run->error; index++) {
		unsigned int part = min_t(unsigned int, bytes - fed, PAGE_SIZE - offset);

		run->error = pwr_run_feed(run, pages[index], offset, part);
		fed += part;
		offset = 0;
	}
	pwr_run_hold(run);
	unpin_user_pages(pages, pinned);
	return run->error ? 0 : fed;
}

/**
 * pwr_send_memory() - feed a run from the caller's memory, and end the run
 * @run: transmission
 * @address: of the first byte, in the caller's address space
 * @bytes: how many; address plus bytes fits in unsigned long
 *
 * Return: 0 when anything was sent, else an error: -EFAULT where nothing readable is mapped.
 */
int pwr_send_memory(struct pwr_run *run, u64 address, u64 bytes)
{
	while (bytes) {
		unsigned int fed = pwr_memory_round(run, address, bytes);

		if (!fed)
			break;
		address += fed;
		bytes -= fed;
		cond_resched();
		if (signal_pending(current) && bytes) {
			run->error = -ERESTARTSYS;
			break;
		}
	}
	return pwr_run_end(run, run->error, false);
}
