/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Shared declarations of pagewire_rtp: a run, which is one transmission in progress.
 *
 * A source (source_file.c, source_memory.c) feeds pages to a run; the run (send.c) cuts them into
 * packets, has a header put before each (header.c) and hands packets, or batches of them, to the
 * socket (handover_*.c). No payload is copied: a packet is a list of pieces of pages. A run lives
 * on the stack of who sends, a call (main.c) or the work of a session (session.c), and allocates
 * nothing but room for headers.
 */
#ifndef PAGEWIRE_RTP_ENGINE_H
#define PAGEWIRE_RTP_ENGINE_H

#include <linux/bvec.h>
#include <linux/fs.h>
#include <linux/net.h>
#include <linux/poll.h>
#include <linux/skbuff.h>
#include <linux/types.h>
#include <linux/pagewire_rtp.h>

#define PWR_RTP_HEADER_BYTES	12	/* RFC 3550, section 5.1, no CSRC and no extension */
#define PWR_DATAGRAM_BYTES_MAX	65507	/* of UDP over IPv4: 65535 less 20 and 8 */

/*
 * Pieces of pages in one handover. A datagram of the largest payload from whole pages has 17 pieces
 * and a header; what lies in more than fit in one sk_buff goes by copy (handover_splice.c).
 */
#define PWR_PIECES_MAX		24

/* A batch for UDP_SEGMENT must fit in the fragments of one sk_buff to go without a copy. */
#define PWR_BATCH_PIECES_MAX	min_t(unsigned int, MAX_SKB_FRAGS, PWR_PIECES_MAX)

/* A look at signals and at who else wants the processor: a page may hold thousands of packets. */
#define PWR_PACKETS_A_TURN	256

/**
 * struct pwr_run - one transmission in progress
 * @socket: connected UDP socket; who made the run holds it
 * @message_flags: MSG_... for every send
 * @error: why the source stopped; a source's own, the engine only returns errors
 * @asked: security modules allowed a send to this socket in this run
 * @whole_only: send no packet shorter than was asked for where the source ends
 * @header: PAGEWIRE_RTP_HEADER_...
 * @payload_type: of RTP headers
 * @segments: packets in a batch, at least 1
 * @header_bytes: before each payload; 0 without headers
 * @header_stride: what a header takes of the room for headers
 * @payload_bytes: of each packet without a plan
 * @packet_payload_bytes: payload of the packet begun last
 * @segment_bytes: header and payload of the first packet in the batch
 * @sequence: of the packet to begin next
 * @timestamp: of the packet to begin next, without a plan; what is added to the plan's with one
 * @timestamp_step: without a plan
 * @ssrc: of RTP headers
 * @plan: one entry a packet, or NULL
 * @headers: the caller's, or NULL
 * @packet: index of the packet to begin next in @plan and @headers
 * @packets_left: packets still to begin
 * @bytes_left: payload of them
 * @sent_packets: handed over
 * @sent_bytes: payload of them
 * @room: page with room for headers, this run's reference; or NULL
 * @room_offset: where the next header goes in it
 * @room_end: where the room ends
 * @missing_bytes: payload that the packet begun last still lacks
 * @pieces: in @piece
 * @whole_pieces: of them in packets that are whole
 * @held_pieces: of them with a page reference of this run's
 * @batch_packets: whole packets in the batch
 * @batch_bytes: headers and payload of whole packets in the batch
 * @batch_payload_bytes: payload of them
 * @begun_bytes: header and payload so far of the packet begun last, while it is not whole
 * @piece: the batch
 */
struct pwr_run {
	struct socket *socket;
	unsigned int message_flags;
	int error;
	bool asked;
	bool whole_only;
	u8 header;
	u8 payload_type;
	u8 segments;
	u16 header_bytes;
	u16 header_stride;
	u16 payload_bytes;
	u16 packet_payload_bytes;
	u32 segment_bytes;
	u16 sequence;
	u32 timestamp;
	u32 timestamp_step;
	u32 ssrc;
	const struct pagewire_rtp_packet *plan;
	const u8 __user *headers;
	u32 packet;
	u64 packets_left;
	u64 bytes_left;
	u64 sent_packets;
	u64 sent_bytes;

	struct page *room;
	unsigned int room_offset;
	unsigned int room_end;

	unsigned int missing_bytes;
	unsigned int pieces;
	unsigned int whole_pieces;
	unsigned int held_pieces;
	unsigned int batch_packets;
	unsigned int batch_bytes;
	unsigned int batch_payload_bytes;
	unsigned int begun_bytes;
	struct bio_vec piece[PWR_PIECES_MAX];
};

/* send.c */
void pwr_run_open(struct pwr_run *run, struct socket *socket, const struct pagewire_rtp_send *send,
		  const struct pagewire_rtp_packet *plan);
int pwr_run_feed(struct pwr_run *run, struct page *page, unsigned int offset, unsigned int bytes);
void pwr_run_hold(struct pwr_run *run);
int pwr_run_end(struct pwr_run *run, int error, bool source_ended);

/* header.c */
void pwr_header_rtp(u8 *at, u8 payload_type, bool marker, u16 sequence, u32 timestamp, u32 ssrc);
int pwr_header_room(struct pwr_run *run);
int pwr_header_put(struct pwr_run *run);

/* handover_splice.c or handover_sendpage.c */
extern const bool pwr_handover_segments;
int pwr_handover(struct pwr_run *run);

/* source_file.c, source_memory.c: feed until all is sent; return 0 or why they stopped */
int pwr_send_file(struct pwr_run *run, struct file *file, u64 offset, u64 bytes);
int pwr_send_memory(struct pwr_run *run, u64 address, u64 bytes);

/* request.c */
int pwr_request_check(const struct pagewire_rtp_send *send);
struct file *pwr_request_file(const struct pagewire_rtp_send *send);
struct socket *pwr_request_socket(const struct pagewire_rtp_send *send);
struct pagewire_rtp_packet *pwr_request_plan(const struct pagewire_rtp_send *send);
int pwr_plan_check(const struct pagewire_rtp_packet *plan, u32 packets, u64 length,
		   unsigned int header_bytes);
unsigned int pwr_request_header_bytes(const struct pagewire_rtp_send *send);

/* session.c */
struct pwr_session;
struct pwr_session *pwr_session_open(void);
void pwr_session_close(struct pwr_session *session);
long pwr_session_ioctl(struct pwr_session *session, unsigned int command, void __user *argument);
__poll_t pwr_session_poll(struct pwr_session *session, struct file *device,
			  struct poll_table_struct *table);

/* pacing.c */
int pwr_pacing_init(void);
void pwr_pacing_exit(void);

/* user.c */
void pwr_users_exit(void);

/* self_test.c */
#ifdef DEBUG
int pwr_self_test(void);
#else
static inline int pwr_self_test(void)
{
	return 0;
}
#endif

#endif
