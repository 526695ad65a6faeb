// SPDX-License-Identifier: GPL-2.0
/*
 * The engine: cuts pages of payload into packets and hands them over.
 *
 * A run keeps a batch: whole packets that are not handed over yet, and at most one packet begun,
 * as pieces of pages. Without UDP_SEGMENT a batch is one packet. Counters of what was sent move
 * only when the socket took a batch; what is not whole by then is never sent, except the last
 * packet of a file that ended.
 *
 * Cost for each packet: a header of 12 bytes, two or three pieces filled in, one sendmsg. A piece
 * needs no page reference of its own while its source holds the page: only what is still in the
 * batch when the source lets go is held by the run (pwr_run_hold()), that is the pieces of one
 * packet in a pipe's 16 pages.
 */
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/socket.h>

#include "engine.h"

/**
 * pwr_run_open() - begin a transmission
 * @run: what to fill in; the batch itself is not cleared
 * @socket: connected UDP socket, held until pwr_run_end()
 * @send: request that pwr_request_check() passed
 * @plan: plan of the request, checked, or NULL
 */
void pwr_run_open(struct pwr_run *run, struct socket *socket, const struct pagewire_rtp_send *send,
		  const struct pagewire_rtp_packet *plan)
{
	memset(run, 0, offsetof(struct pwr_run, piece));
	run->socket = socket;
	run->message_flags = MSG_NOSIGNAL;
	if (socket->file && (socket->file->f_flags & O_NONBLOCK))
		run->message_flags |= MSG_DONTWAIT;
	run->header = send->header;
	run->payload_type = send->payload_type;
	run->segments = max_t(u8, send->segments, 1);
	run->header_bytes = pwr_request_header_bytes(send);
	run->header_stride = ALIGN(run->header_bytes, 16);
	run->payload_bytes = send->payload_bytes;
	run->sequence = send->sequence;
	run->timestamp = plan ? 0 : send->timestamp;
	run->timestamp_step = send->timestamp_step;
	run->ssrc = send->ssrc;
	run->plan = plan;
	run->whole_only = plan;
	if (send->header == PAGEWIRE_RTP_HEADER_CALLER)
		run->headers = u64_to_user_ptr(send->headers);
	run->bytes_left = send->length;
	run->packets_left = plan ? send->packets :
				   DIV_ROUND_UP_ULL(send->length, send->payload_bytes);
}

/* Page references of pieces that outlived their source. */
static void pwr_run_release(struct pwr_run *run)
{
	while (run->held_pieces)
		put_page(run->piece[--run->held_pieces].bv_page);
}

/**
 * pwr_run_hold() - take references to what is in the batch
 * @run: after its source was fed, before the source lets go of its pages
 */
void pwr_run_hold(struct pwr_run *run)
{
	while (run->held_pieces < run->pieces)
		get_page(run->piece[run->held_pieces++].bv_page);
}

static int pwr_run_flush(struct pwr_run *run)
{
	int error = pwr_handover(run);

	pwr_run_release(run);
	if (!error) {
		run->sent_packets += run->batch_packets;
		run->sent_bytes += run->batch_payload_bytes;
	}
	run->pieces = 0;
	run->whole_pieces = 0;
	run->batch_packets = 0;
	run->batch_bytes = 0;
	run->batch_payload_bytes = 0;
	return error;
}

/* Pieces that a packet takes whose payload starts with @bytes more in the page at hand. */
static unsigned int pwr_pieces(const struct pwr_run *run, unsigned int payload_bytes,
			       unsigned int bytes)
{
	unsigned int pieces = run->header_bytes ? 2 : 1;

	if (payload_bytes > bytes)
		pieces += DIV_ROUND_UP(payload_bytes - bytes, PAGE_SIZE);
	return pieces;
}

/* True when a packet may join the batch: UDP_SEGMENT wants one size, the last perhaps smaller. */
static bool pwr_run_joins(const struct pwr_run *run, unsigned int payload_bytes,
			  unsigned int bytes)
{
	unsigned int packet_bytes = run->header_bytes + payload_bytes;

	return packet_bytes <= run->segment_bytes &&
	       run->batch_bytes + packet_bytes <= PWR_DATAGRAM_BYTES_MAX &&
	       run->pieces + pwr_pieces(run, payload_bytes, bytes) <= PWR_BATCH_PIECES_MAX;
}

/* Begins a packet, with @bytes of payload at hand in one page. */
static int pwr_run_begin(struct pwr_run *run, unsigned int bytes)
{
	unsigned int payload_bytes = run->payload_bytes;
	int error;

	if (run->packet % PWR_PACKETS_A_TURN == PWR_PACKETS_A_TURN - 1) {
		cond_resched();
		if (signal_pending(current))
			return -ERESTARTSYS;
	}
	if (run->plan)
		payload_bytes = run->plan[run->packet].payload_bytes;
	else if (run->bytes_left < payload_bytes)
		payload_bytes = run->bytes_left;

	if (run->batch_packets && !pwr_run_joins(run, payload_bytes, bytes)) {
		error = pwr_run_flush(run);
		if (error)
			return error;
	}
	if (!run->batch_packets) {
		run->segment_bytes = run->header_bytes + payload_bytes;
		if (run->header_bytes) {
			error = pwr_header_room(run);
			if (error)
				return error;
		}
	}
	if (run->header_bytes) {
		error = pwr_header_put(run);
		if (error)
			return error;
	}
	run->begun_bytes = run->header_bytes;
	run->packet_payload_bytes = payload_bytes;
	run->missing_bytes = payload_bytes;
	run->bytes_left -= payload_bytes;
	run->packets_left--;
	run->packet++;
	run->sequence++;
	if (!run->plan)
		run->timestamp += run->timestamp_step;
	return 0;
}

/* The packet begun last is whole. */
static int pwr_run_packet_end(struct pwr_run *run)
{
	run->batch_packets++;
	run->batch_bytes += run->begun_bytes;
	run->batch_payload_bytes += run->begun_bytes - run->header_bytes;
	run->whole_pieces = run->pieces;
	if (run->batch_packets < run->segments && run->begun_bytes == run->segment_bytes)
		return 0;
	return pwr_run_flush(run);
}

/* Adds payload to the packet begun; headerless payload in one page becomes one piece. */
static int pwr_run_add(struct pwr_run *run, struct page *page, unsigned int offset,
		       unsigned int bytes)
{
	struct bio_vec *last = &run->piece[run->pieces - 1];

	if (!run->header_bytes && run->pieces && last->bv_page == page &&
	    last->bv_offset + last->bv_len == offset) {
		last->bv_len += bytes;
	} else {
		if (run->pieces == PWR_PIECES_MAX)
			return -EMSGSIZE;
		bvec_set_page(&run->piece[run->pieces++], page, bytes, offset);
	}
	run->begun_bytes += bytes;
	run->missing_bytes -= bytes;
	return 0;
}

/**
 * pwr_run_feed() - the next bytes of payload
 * @run: transmission that still wants this many bytes
 * @page: page they are in; the source holds it until pwr_run_hold()
 * @offset: where in the page
 * @bytes: how many, at most what is left in the page
 *
 * Return: 0, or why a packet was not sent; then the run must be ended.
 */
int pwr_run_feed(struct pwr_run *run, struct page *page, unsigned int offset, unsigned int bytes)
{
	int error;

	/* Slab memory may not be in a fragment, and the stack would warn; no file system has it. */
	if (unlikely(!sendpage_ok(page)))
		return -EIO;
	while (bytes) {
		unsigned int part;

		if (!run->missing_bytes) {
			error = pwr_run_begin(run, bytes);
			if (error)
				return error;
		}
		part = min(bytes, run->missing_bytes);
		error = pwr_run_add(run, page, offset, part);
		if (error)
			return error;
		offset += part;
		bytes -= part;
		if (!run->missing_bytes) {
			error = pwr_run_packet_end(run);
			if (error)
				return error;
		}
	}
	return 0;
}

/**
 * pwr_run_end() - hand over what is whole, let go of the rest
 * @run: transmission
 * @error: why the source stopped, or 0
 * @source_ended: the source has no more bytes, so that a packet begun is the last
 *
 * Return: 0 when anything was sent or nothing was wrong, else the error.
 */
int pwr_run_end(struct pwr_run *run, int error, bool source_ended)
{
	if (run->missing_bytes && source_ended && !run->whole_only && !error) {
		run->missing_bytes = 0;
		error = pwr_run_packet_end(run);
	}
	run->missing_bytes = 0;
	/* The batch itself was not refused if the source stopped for a reason of its own. */
	if (run->batch_packets) {
		int refused;

		while (run->held_pieces > run->whole_pieces)
			put_page(run->piece[--run->held_pieces].bv_page);
		run->pieces = run->whole_pieces;
		refused = pwr_run_flush(run);
		if (refused)
			error = refused;
	}
	pwr_run_release(run);
	if (run->room)
		put_page(run->room);
	run->room = NULL;
	return run->sent_packets ? 0 : error;
}
