// SPDX-License-Identifier: GPL-2.0
/*
 * Payload from a file, by page reference: splice_direct_to_actor() with an actor of our own.
 *
 * The file system fills the task's internal pipe with up to 16 pages at a time (from the page
 * cache, with its readahead; or from buffers of its own where it has no page cache), the actor
 * feeds all of them to the run and lets them go: an sk_buff has references of its own by then. A
 * page costs one reference up and down and a slot of the pipe; a third of that for each packet.
 *
 * Splicing implies, as with sendfile(2): pages written to while a packet waits in a queue go
 * out with the new bytes. A page truncated away meanwhile goes out as it was.
 *
 * Sources: fs/splice.c, mm/filemap.c.
 */
#include <linux/fs.h>
#include <linux/kernel.h>
#include <linux/pipe_fs_i.h>
#include <linux/sched/signal.h>
#include <linux/sizes.h>
#include <linux/splice.h>

#include "engine.h"

/* Bytes in one splice: keeps lengths within what 32-bit size_t and ssize_t hold. */
#define PWR_SPLICE_BYTES_MAX	SZ_1G

/*
 * Feeds all that is in the pipe. The pipe's references go when this returns: on an error
 * splice_direct_to_actor() releases all of it, and pwr_run_end() still sends the whole packets of
 * the batch. So the run takes references of its own before every return.
 */
static int pwr_file_actor(struct pipe_inode_info *pipe, struct splice_desc *desc)
{
	struct pwr_run *run = desc->u.data;
	unsigned int mask = pipe->ring_size - 1;
	typeof(pipe->tail) tail = pipe->tail;
	size_t fed = 0;

	for (; !run->error && fed < desc->total_len && tail != pipe->head; tail++) {
		struct pipe_buffer *buffer = &pipe->bufs[tail & mask];
		unsigned int bytes = min_t(size_t, buffer->len, desc->total_len - fed);

		run->error = pipe_buf_confirm(pipe, buffer);
		if (!run->error)
			run->error = pwr_run_feed(run, buffer->page, buffer->offset, bytes);
		fed += bytes;
	}
	pwr_run_hold(run);
	if (unlikely(run->error))
		return run->error;
	while (pipe->tail != tail)
		pipe_buf_release(pipe, &pipe->bufs[pipe->tail++ & mask]);

	cond_resched();
	if (signal_pending(current) && run->bytes_left) {
		run->error = -ERESTARTSYS;
		return run->error;
	}
	return fed;
}

/**
 * pwr_send_file() - feed a run from a file, and end the run
 * @run: transmission
 * @file: open for reading, with splice_read
 * @offset: of the first byte
 * @bytes: how many; offset plus bytes fits in loff_t
 *
 * Return: 0 when anything was sent or the file ended at or before the offset, else an error.
 */
int pwr_send_file(struct pwr_run *run, struct file *file, u64 offset, u64 bytes)
{
	bool ended = false;

	while (bytes && !run->error) {
		struct splice_desc desc = {
			.pos = offset,
			.total_len = min_t(u64, bytes, PWR_SPLICE_BYTES_MAX),
			.u.data = run,
		};
		loff_t position = offset;
		ssize_t fed;

		fed = rw_verify_area(READ, file, &position, desc.total_len);
		if (fed >= 0)
			fed = splice_direct_to_actor(file, &desc, pwr_file_actor);
		if (fed <= 0) {
			run->error = fed;
			ended = !fed;
			break;
		}
		/* Fewer than wanted is no end yet: the next turn tells an end from an error. */
		offset += fed;
		bytes -= fed;
	}
	/* The page at hand was truncated away while it was read: the file ends before it. */
	if (run->error == -ENODATA) {
		run->error = 0;
		ended = true;
	}
	return pwr_run_end(run, run->error, ended);
}
