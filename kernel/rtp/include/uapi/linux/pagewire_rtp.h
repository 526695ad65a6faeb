/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * pagewire_rtp: the interface of the in-kernel RTP engine, /dev/pagewire_rtp.
 *
 * One call sends a whole range of a file, or of memory that a file is mapped to, as the payload of
 * UDP datagrams: no copy of the payload, one crossing whatever the number of packets. The headers
 * are none, the caller's, or RTP's fixed header (RFC 3550, section 5.1) made by the engine.
 *
 * All structures have the same layout for 32-bit and 64-bit callers: fixed widths, every field on
 * its natural boundary, addresses as __u64.
 */
#ifndef _UAPI_LINUX_PAGEWIRE_RTP_H
#define _UAPI_LINUX_PAGEWIRE_RTP_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Where payload comes from: a file (offset in it), or the caller's memory (offset is an address). */
#define PAGEWIRE_RTP_FROM_FILE		0
#define PAGEWIRE_RTP_FROM_MEMORY	1

/* What stands before each payload. */
#define PAGEWIRE_RTP_HEADER_NONE	0	/* nothing */
#define PAGEWIRE_RTP_HEADER_CALLER	1	/* header_bytes from headers, one after the other */
#define PAGEWIRE_RTP_HEADER_ENGINE	2	/* 12 bytes of RTP, made from the fields below */

#define PAGEWIRE_RTP_HEADER_BYTES_MAX	128	/* of a header of the caller's */
#define PAGEWIRE_RTP_PAYLOAD_BYTES_MAX	65495	/* 65507 less RTP's fixed header */
#define PAGEWIRE_RTP_PACKETS_MAX	65536	/* of a plan, or of headers, in one call */
#define PAGEWIRE_RTP_SEGMENTS_MAX	64	/* packets in one UDP_SEGMENT send */

#define PAGEWIRE_RTP_MARKER		1	/* of struct pagewire_rtp_packet: the M bit */

/**
 * struct pagewire_rtp_packet - one packet of a plan
 * @payload_bytes: bytes of payload, 1 to PAGEWIRE_RTP_PAYLOAD_BYTES_MAX
 * @flags: PAGEWIRE_RTP_MARKER or 0
 * @timestamp: RTP timestamp of the packet
 */
struct pagewire_rtp_packet {
	__u16 payload_bytes;
	__u16 flags;
	__u32 timestamp;
};

/**
 * struct pagewire_rtp_send - what PAGEWIRE_RTP_SEND sends, and how far it came
 * @file_fd: open for reading, a regular file; -1 with PAGEWIRE_RTP_FROM_MEMORY
 * @socket_fd: a connected UDP socket, IPv4 or IPv6
 * @offset: first byte of payload: offset in the file, or address
 * @length: bytes of payload in all, at least 1
 * @plan: address of struct pagewire_rtp_packet[@packets], whose payloads add up to @length; or 0:
 *	all packets have @payload_bytes, the last perhaps fewer
 * @headers: with PAGEWIRE_RTP_HEADER_CALLER, address of @packets headers of @header_bytes; else 0
 * @packets: entries at @plan and @headers, 1 to PAGEWIRE_RTP_PACKETS_MAX; 0 without both
 * @payload_bytes: of each packet without a plan; 0 with one
 * @header_bytes: with PAGEWIRE_RTP_HEADER_CALLER, 1 to PAGEWIRE_RTP_HEADER_BYTES_MAX; else 0
 * @source: PAGEWIRE_RTP_FROM_...
 * @header: PAGEWIRE_RTP_HEADER_...
 * @segments: packets handed to the network stack at once as UDP_SEGMENT; 0 and 1 mean single
 *	packets. With a plan, packets that are not of one size end a batch early.
 * @payload_type: RTP payload type, 0 to 127
 * @ssrc: RTP synchronisation source
 * @timestamp: of the first packet without a plan; after the call that of the next
 * @timestamp_step: what is added from packet to packet without a plan
 * @sequence: of the first packet; after the call that of the next
 * @reserved: 0
 * @sent_packets: out: packets handed to the stack
 * @sent_bytes: out: bytes of payload in them
 *
 * The call returns 0 when it sent anything, also if less than was asked (the file ended, a signal
 * came, the socket refused a later packet): compare @sent_bytes with @length and call again for the
 * rest, which then reports what was wrong, as with sendmmsg(2). It returns an error when it sent
 * nothing; 0 with @sent_packets 0 when the file ends at or before @offset.
 */
struct pagewire_rtp_send {
	__s32 file_fd;
	__s32 socket_fd;
	__u64 offset;
	__u64 length;
	__u64 plan;
	__u64 headers;
	__u32 packets;
	__u16 payload_bytes;
	__u16 header_bytes;
	__u8 source;
	__u8 header;
	__u8 segments;
	__u8 payload_type;
	__u32 ssrc;
	__u32 timestamp;
	__u32 timestamp_step;
	__u16 sequence;
	__u16 reserved[3];
	__u64 sent_packets;
	__u64 sent_bytes;
};

#define PAGEWIRE_RTP_SEND _IOWR('P', 0xe0, struct pagewire_rtp_send)

#endif
