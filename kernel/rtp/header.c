// SPDX-License-Identifier: GPL-2.0
/*
 * The header before each payload: RTP's fixed header, or the caller's.
 *
 * Headers lie one after the other in pages of the task's fragment cache, the one TCP copies into:
 * whole pages and never slab memory, since an sk_buff refers to them by page. A run takes a piece
 * of that cache for many headers at a time and one reference for all of them; so a header costs
 * its own 12 stores and no allocation. The reference also keeps the cache from starting the page
 * anew while headers in it are not handed over yet.
 *
 * Sources: RFC 3550, section 5.1; skb_page_frag_refill().
 */
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/uaccess.h>
#include <net/sock.h>

#include "engine.h"

/* Headers a run makes room for at once: 2 KiB of RTP's. */
#define PWR_ROOM_HEADERS_MAX	128

/**
 * pwr_header_rtp() - write RTP's fixed header
 * @at: PWR_RTP_HEADER_BYTES of room, aligned to 4
 * @payload_type: 0 to 127
 * @marker: the M bit
 * @sequence: sequence number
 * @timestamp: RTP timestamp
 * @ssrc: synchronisation source
 */
void pwr_header_rtp(u8 *at, u8 payload_type, bool marker, u16 sequence, u32 timestamp, u32 ssrc)
{
	at[0] = 2 << 6;	/* version 2; no padding, extension or contributing sources */
	at[1] = (marker ? 0x80 : 0) | payload_type;
	*(__be16 *)(at + 2) = cpu_to_be16(sequence);
	*(__be32 *)(at + 4) = cpu_to_be32(timestamp);
	*(__be32 *)(at + 8) = cpu_to_be32(ssrc);
}

/**
 * pwr_header_room() - have room for the headers of a batch
 * @run: with no packet begun
 *
 * Called where a batch begins, so that the headers of one batch lie in one room.
 *
 * Return: 0, or -ENOMEM.
 */
int pwr_header_room(struct pwr_run *run)
{
	unsigned int batch_headers = min_t(unsigned int, run->segments, PWR_BATCH_PIECES_MAX / 2);
	unsigned int bytes = batch_headers * run->header_stride;
	struct page_frag *cache = &current->task_frag;
	unsigned int offset;

	if (run->room && run->room_offset + bytes <= run->room_end)
		return 0;
	if (run->room)
		put_page(run->room);
	run->room = NULL;

	bytes = max_t(u64, bytes, min_t(u64, run->packets_left, PWR_ROOM_HEADERS_MAX) *
				  run->header_stride);
	bytes = min_t(unsigned int, bytes, PAGE_SIZE - SMP_CACHE_BYTES);
	if (!skb_page_frag_refill(bytes + SMP_CACHE_BYTES, cache, run->socket->sk->sk_allocation))
		return -ENOMEM;
	offset = ALIGN(cache->offset, 16);	/* others leave it anywhere */
	run->room = cache->page;
	run->room_offset = offset;
	run->room_end = offset + bytes;
	cache->offset = run->room_end;
	get_page(run->room);
	return 0;
}

/**
 * pwr_header_put() - make the header of the packet that run->packet names, as the next piece
 * @run: with room
 *
 * Return: 0, or -EFAULT when the caller's header is not readable.
 */
int pwr_header_put(struct pwr_run *run)
{
	struct bio_vec *piece = &run->piece[run->pieces];
	unsigned int offset = run->room_offset;
	u8 *at = page_address(run->room) + offset;
	u32 timestamp = run->timestamp;
	bool marker = false;

	if (run->header == PAGEWIRE_RTP_HEADER_ENGINE) {
		if (run->plan) {
			timestamp += run->plan[run->packet].timestamp;
			marker = run->plan[run->packet].flags & PAGEWIRE_RTP_MARKER;
		}
		pwr_header_rtp(at, run->payload_type, marker, run->sequence, timestamp, run->ssrc);
	} else if (copy_from_user(at, run->headers + (size_t)run->packet * run->header_bytes,
				  run->header_bytes)) {
		return -EFAULT;
	}
	run->room_offset += run->header_stride;
	bvec_set_page(piece, run->room, run->header_bytes, offset);
	run->pieces++;
	return 0;
}
